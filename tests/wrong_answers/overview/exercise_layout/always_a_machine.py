def layout(parameters, layers, width, tokens, machines):
    """Tensor over the whole machine, whether or not the model needs it."""
    devices = 8 * machines
    for pipeline in range(1, layers + 1):
        if layers % pipeline == 0 and devices % (8 * pipeline) == 0:
            split = [devices // 8 // pipeline, 8, pipeline]
            if memory(split, parameters, layers, width, tokens) <= 80 * GB:
                return split

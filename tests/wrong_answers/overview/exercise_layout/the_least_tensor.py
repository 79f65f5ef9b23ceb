def layout(parameters, layers, width, tokens, machines):
    """As little tensor as fits with any pipeline, because its sums cannot be hidden."""
    devices = 8 * machines
    for tensor in (1, 2, 4, 8):
        for pipeline in range(1, layers + 1):
            split = [devices // tensor // pipeline, tensor, pipeline]
            if layers % pipeline == devices % (tensor * pipeline) == 0:
                if memory(split, parameters, layers, width, tokens) <= 80 * GB:
                    return split

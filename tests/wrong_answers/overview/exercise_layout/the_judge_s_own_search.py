def layout(parameters, layers, width, tokens, machines):
    training, devices = (parameters, layers, width, tokens), 8 * machines
    _, tensor = fastest(*training, machines=machines)
    for pipeline in range(1, layers + 1):
        split = [devices // tensor // pipeline, tensor, pipeline]
        divides = layers % pipeline == devices % (tensor * pipeline) == 0
        if divides and memory(split, *training) <= 80 * GB:
            return split

def layout(parameters, layers, width, tokens, machines):
    """Try all that fit: tensor in a machine, pipeline where it divides the layers."""
    devices, best = 8 * machines, None
    for tensor in (1, 2, 4, 8):
        for pipeline in range(1, layers + 1):
            if layers % pipeline or devices % (tensor * pipeline):
                continue
            split = [devices // tensor // pipeline, tensor, pipeline]
            if memory(split, parameters, layers, width, tokens) > 80 * GB:
                continue
            took = seconds(split, parameters, layers, width, tokens)
            if best is None or took < best[0]:
                best = took, split
    return best[1]

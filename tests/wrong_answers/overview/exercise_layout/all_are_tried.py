def layout(parameters, layers, width, tokens, machines):
    """Brute force: every layout that fits is asked about."""
    training, devices, best = (parameters, layers, width, tokens), 8 * machines, None
    for tensor in (1, 2, 4, 8):
        for pipeline in range(1, layers + 1):
            if layers % pipeline or devices % (tensor * pipeline):
                continue
            split = [devices // tensor // pipeline, tensor, pipeline]
            if memory(split, *training) <= 80 * GB:
                took = seconds(split, *training)
                if best is None or took < best[0]:
                    best = took, split
    return best[1]

import math


def layout(parameters, layers, width, tokens, machines):
    best = None
    for tensor in (8, 4, 2, 1):
        spare = 80 * GB - 2 * MICRO * width * layers / tensor
        if spare <= 0:
            continue
        pipeline = math.ceil(16 * parameters / tensor / spare)
        while pipeline <= layers and (
            layers % pipeline or 8 * machines % (tensor * pipeline)
        ):
            pipeline += 1
        if pipeline > layers:
            continue
        split = [8 * machines // (tensor * pipeline), tensor, pipeline]
        took = seconds(split, parameters, layers, width, tokens)
        if best is None or took < best[0]:
            best = took, split
    return best[1]

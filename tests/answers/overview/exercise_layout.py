# %% wrong: all are tried
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


# %% wrong: always a machine
def layout(parameters, layers, width, tokens, machines):
    """Tensor over the whole machine, whether or not the model needs it."""
    devices = 8 * machines
    for pipeline in range(1, layers + 1):
        if layers % pipeline == 0 and devices % (8 * pipeline) == 0:
            split = [devices // 8 // pipeline, 8, pipeline]
            if memory(split, parameters, layers, width, tokens) <= 80 * GB:
                return split


# %% wrong: data only
def layout(parameters, layers, width, tokens, machines):
    """Data parallel alone: the model does not fit."""
    return [8 * machines, 1, 1]


# %% wrong: tensor across machines
def layout(parameters, layers, width, tokens, machines):
    """As much tensor as memory asks for, and no pipeline."""
    tensor = 1
    while memory([1, tensor, 1], parameters, layers, width, tokens) > 80 * GB:
        tensor *= 2
    return [8 * machines // tensor, tensor, 1]


# %% wrong: the judge's own search
def layout(parameters, layers, width, tokens, machines):
    training, devices = (parameters, layers, width, tokens), 8 * machines
    _, tensor = fastest(*training, machines=machines)
    for pipeline in range(1, layers + 1):
        split = [devices // tensor // pipeline, tensor, pipeline]
        divides = layers % pipeline == devices % (tensor * pipeline) == 0
        if divides and memory(split, *training) <= 80 * GB:
            return split


# %% right: by arithmetic
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

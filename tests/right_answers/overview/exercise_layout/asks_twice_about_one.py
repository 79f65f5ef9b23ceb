def layout(parameters, layers, width, tokens, machines, tensor=8, pipeline=1):
    """One more stage until it fits, then half of tensor."""
    training = parameters, layers, width, tokens
    if tensor < 1:
        return None
    if pipeline > layers:
        return layout(*training, machines, tensor=tensor // 2)
    split = [8 * machines // tensor // pipeline, tensor, pipeline]
    whole = layers % pipeline == 0 and split[0] * tensor * pipeline == 8 * machines
    if not whole or memory(split, *training) > 80 * GB:
        return layout(*training, machines, tensor=tensor, pipeline=pipeline + 1)
    other = layout(*training, machines, tensor=tensor // 2)
    if other is None:
        return split
    return min(split, other, key=lambda each: seconds(each, *training))

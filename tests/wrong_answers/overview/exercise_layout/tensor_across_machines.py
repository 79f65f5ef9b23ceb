def layout(parameters, layers, width, tokens, machines):
    """As much tensor as memory asks for, and no pipeline."""
    tensor = 1
    while memory([1, tensor, 1], parameters, layers, width, tokens) > 80 * GB:
        tensor *= 2
    return [8 * machines // tensor, tensor, 1]

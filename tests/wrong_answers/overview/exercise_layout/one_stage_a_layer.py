def layout(parameters, layers, width, tokens, machines):
    """As many stages as can be: the bubble."""
    devices = 8 * machines
    most = max(p for p in range(1, layers + 1) if layers % p + devices % p == 0)
    return [devices // most, 1, most]

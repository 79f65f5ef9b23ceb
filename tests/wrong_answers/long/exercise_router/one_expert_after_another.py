def adjust(bias, wanted):
    mean = wanted.float().mean()
    return (bias - 0.3 * (wanted / mean - 1)).clamp(-1, 1)

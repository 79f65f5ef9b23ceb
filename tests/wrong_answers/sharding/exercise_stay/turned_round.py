def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    fit = [k for k in choices if most(unit_bytes[::-1], k[::-1]) <= room]
    return max(fit, key=kept)

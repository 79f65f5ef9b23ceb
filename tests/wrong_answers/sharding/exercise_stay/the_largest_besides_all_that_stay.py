def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    # As if the units behind the one that works were whole as well.
    fit = [keep for keep in choices if kept(keep) + max(unit_bytes) <= room]
    return max(fit, key=kept)

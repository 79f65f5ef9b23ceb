def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    return max((keep for keep in choices if kept(keep) <= room), key=kept)

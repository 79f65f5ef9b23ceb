# %% wrong: all stay
def stay(unit_bytes, room):
    return [True] * len(unit_bytes)


# %% wrong: none stays
def stay(unit_bytes, room):
    return [False] * len(unit_bytes)


# %% wrong: the largest first
def stay(unit_bytes, room):
    keep = [False] * len(unit_bytes)
    order = sorted(range(len(keep)), key=lambda i: unit_bytes[i], reverse=True)
    for i in order:  # greedy
        keep[i] = True
        keep[i] = most(unit_bytes, keep) <= room
    return keep


# %% wrong: the unit that works forgotten
def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    return max((keep for keep in choices if kept(keep) <= room), key=kept)


# %% right: a table of sums
def stay(unit_bytes, room):
    kept = {0: []}  # bytes that stay so far: which ones
    for size in unit_bytes:
        here = {total: keep for total, keep in kept.items() if total + size <= room}
        kept = {total: [*keep, False] for total, keep in here.items()}
        kept |= {total + size: [*keep, True] for total, keep in here.items()}
    return kept[max(kept)]

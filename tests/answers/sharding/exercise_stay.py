# %% wrong: all stay
def stay(unit_bytes, room):
    return [True] * len(unit_bytes)


# %% wrong: from the back while it fits
def stay(unit_bytes, room):
    keep = [False] * len(unit_bytes)
    for i in reversed(range(len(keep))):
        keep[i] = True
        keep[i] = most(unit_bytes, keep) <= room
    return keep


# %% wrong: most units instead of most bytes
def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))
    return max((k for k in choices if most(unit_bytes, k) <= room), key=sum)


# %% wrong: none stays
def stay(unit_bytes, room):
    return [False] * len(unit_bytes)


# %% wrong: only one stays
def stay(unit_bytes, room):
    fits = []
    for i, size in enumerate(unit_bytes):
        keep = [j == i for j in range(len(unit_bytes))]
        if most(unit_bytes, keep) <= room:
            fits.append((size, keep))
    return max(fits)[1]


# %% wrong: only the last stays
def stay(unit_bytes, room):
    return [False] * (len(unit_bytes) - 1) + [True]


# %% wrong: the first ones that fit
def stay(unit_bytes, room):
    keep = []
    for size in unit_bytes:
        keep.append(size <= room)
        room -= size * keep[-1]
    return keep


# %% wrong: the largest besides all that stay
def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    # As if the units behind the one that works were whole as well.
    fit = [keep for keep in choices if kept(keep) + max(unit_bytes) <= room]
    return max(fit, key=kept)


# %% wrong: the largest first
def stay(unit_bytes, room):
    keep = [False] * len(unit_bytes)
    order = sorted(range(len(keep)), key=lambda i: unit_bytes[i], reverse=True)
    for i in order:  # greedy
        keep[i] = True
        keep[i] = most(unit_bytes, keep) <= room
    return keep


# %% wrong: the last ones that fit
def stay(unit_bytes, room):
    keep = []
    for size in reversed(unit_bytes):
        keep.insert(0, size <= room)
        room -= size * keep[0]
    return keep


# %% wrong: the unit that works forgotten
def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    return max((keep for keep in choices if kept(keep) <= room), key=kept)


# %% wrong: turned round
def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))

    def kept(keep):
        return sum(size for size, stays in zip(unit_bytes, keep, strict=True) if stays)

    fit = [k for k in choices if most(unit_bytes[::-1], k[::-1]) <= room]
    return max(fit, key=kept)


# %% right: a table of sums
def stay(unit_bytes, room):
    kept = {0: []}  # bytes that stay so far: which ones
    for size in unit_bytes:
        here = {total: keep for total, keep in kept.items() if total + size <= room}
        kept = {total: [*keep, False] for total, keep in here.items()}
        kept |= {total + size: [*keep, True] for total, keep in here.items()}
    return kept[max(kept)]


# %% right: bit masks
def stay(unit_bytes, room):
    best = (-1, [])
    for mask in range(2 ** len(unit_bytes)):
        whole, fits, keep = 0, True, []
        for i, size in enumerate(unit_bytes):
            fits = fits and whole + size <= room
            keep.append(bool(mask >> i & 1))
            whole += size * keep[-1]
        if fits:
            best = max(best, (whole, keep))
    return best[1]


# %% right: recursive
import functools


def stay(unit_bytes, room):
    @functools.cache
    def best(place, whole):
        if place == len(unit_bytes):
            return 0, ()
        size = unit_bytes[place]
        if whole + size > room:
            return -math_inf, ()
        goes = best(place + 1, whole)
        stays = best(place + 1, whole + size)
        return max((goes[0], (False, *goes[1])), (stays[0] + size, (True, *stays[1])))

    math_inf = float("inf")
    return list(best(0, 0)[1])


# %% right: uses up its list
def stay(unit_bytes, room):
    """What stays in front leaves less room behind: tried one unit after the other."""
    if not unit_bytes:
        return []
    first = unit_bytes.pop(0)
    if first > room:
        return None
    ways = []
    for stays in (False, True):
        rest = stay(unit_bytes.copy(), room - first * stays)
        if rest is not None:
            ways.append([stays, *rest])
    sizes = [first, *unit_bytes]
    unit_bytes.clear()

    def kept(keep):
        return sum(size for size, stays in zip(sizes, keep, strict=True) if stays)

    return max(ways, key=kept, default=None)

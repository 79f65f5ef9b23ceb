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

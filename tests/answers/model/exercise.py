# %% wrong: equally many layers
def place(layer_bytes, world_size):
    edges = [rank * len(layer_bytes) // world_size for rank in range(world_size + 1)]
    return [end - first for first, end in itertools.pairwise(edges)]


# %% wrong: full up to the average
def place(layer_bytes, world_size):
    counts, average = [0] * world_size, sum(layer_bytes) / world_size
    rank = held = 0
    for size in layer_bytes:
        if held + size > average and counts[rank] and rank < world_size - 1:
            rank, held = rank + 1, 0
        counts[rank], held = counts[rank] + 1, held + size
    return counts


# %% right: bits
def place(layer_bytes, world_size):
    def pieces(bits):
        cut = [[layer_bytes[0]]]
        for place, size in enumerate(layer_bytes[1:]):
            if bits >> place & 1:
                cut.append([])
            cut[-1].append(size)
        return cut

    cuts = [pieces(bits) for bits in range(2 ** (len(layer_bytes) - 1))]
    fit = [cut for cut in cuts if len(cut) == world_size]
    return torch.tensor(
        [len(p) for p in min(fit, key=lambda cut: max(map(sum, cut)))]
    ).tolist()


# %% right: dynamic programming
import functools


def place(layer_bytes, world_size):
    @functools.cache
    def best(first, ranks):
        if ranks == 1:
            return sum(layer_bytes[first:]), (len(layer_bytes) - first,)
        found = []
        for count in range(1, len(layer_bytes) - first - ranks + 2):
            peak, rest = best(first + count, ranks - 1)
            found.append(
                (max(peak, sum(layer_bytes[first : first + count])), (count, *rest))
            )
        return min(found)

    return best(0, world_size)[1]


# %% right: limits tried
def packed(layer_bytes, limit, world_size):
    counts, held = [0], 0
    for place, size in enumerate(layer_bytes):
        left = len(layer_bytes) - place
        full = held + size > limit or left <= world_size - len(counts)
        if counts[-1] and full:
            counts, held = [*counts, 0], 0
        counts[-1] += 1
        held += size
    return counts


def place(layer_bytes, world_size):
    sums = {sum(layer_bytes[a:b]) for a in range(8) for b in range(a + 1, 9)}
    for limit in sorted(sums):
        if limit < max(layer_bytes):
            continue
        counts = packed(layer_bytes, limit, world_size)
        if len(counts) == world_size:
            return counts


# %% right: uses up its list
def cut(layer_bytes, limit):
    counts = [0]
    room = limit
    while layer_bytes:
        if layer_bytes[0] > room:
            counts.append(0)
            room = limit
        counts[-1] += 1
        room -= layer_bytes.pop(0)
    return counts


def place(layer_bytes, world_size):
    limit = max(layer_bytes)
    while len(counts := cut(layer_bytes.copy(), limit)) > world_size:
        limit += 1
    layer_bytes.clear()
    while len(counts) < world_size:
        at = max(range(len(counts)), key=counts.__getitem__)
        counts[at : at + 1] = [counts[at] - 1, 1]
    return counts


# %% right: walk
def place(layer_bytes, world_size):
    best = {"peak": float("inf"), "counts": None}

    def walk(first, counts, peak):
        if peak >= best["peak"]:
            return
        if len(counts) == world_size:
            if first == len(layer_bytes):
                best.update(peak=peak, counts=counts)
            return
        for end in range(first + 1, len(layer_bytes) + 1):
            held = sum(layer_bytes[first:end])
            walk(end, [*counts, end - first], max(peak, held))

    walk(0, [], 0)
    return best["counts"]

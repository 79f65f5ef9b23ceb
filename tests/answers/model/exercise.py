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


# %% wrong: full up to the average of the rest
def place(layer_bytes, world_size):
    counts, first = [], 0
    for rank in range(world_size):
        left = world_size - rank - 1  # ranks that still need a layer
        if not left:
            return [*counts, len(layer_bytes) - first]
        share, end = sum(layer_bytes[first:]) / (left + 1), first + 1
        while end < len(layer_bytes) - left:
            held = sum(layer_bytes[first:end])
            if abs(held + layer_bytes[end] - share) >= abs(held - share):
                break  # nearer to the share without the next layer
            end += 1
        counts.append(end - first)
        first = end


# %% wrong: halves of the fullest
def place(layer_bytes, world_size):
    pieces = [[0, len(layer_bytes)]]

    def held(piece):
        return sum(layer_bytes[slice(*piece)])

    while len(pieces) < world_size:  # cut the fullest where its halves are most even
        fullest = max((p for p in pieces if p[1] - p[0] > 1), key=held)
        first, end = fullest
        cut = min(
            range(first + 1, end),
            key=lambda cut: max(held([first, cut]), held([cut, end])),
        )
        where = pieces.index(fullest)
        pieces[where : where + 1] = [[first, cut], [cut, end]]
    return [end - first for first, end in pieces]


# %% wrong: most even by squares
def place(layer_bytes, world_size):
    def unevenness(cuts):
        edges = itertools.pairwise([0, *cuts, 8])
        return sum(sum(layer_bytes[first:end]) ** 2 for first, end in edges)

    best = min(itertools.combinations(range(1, 8), world_size - 1), key=unevenness)
    return [end - first for first, end in itertools.pairwise([0, *best, 8])]


# %% wrong: right for the lessons layers only
def place(layer_bytes, world_size):
    known = {2: [7, 1], 3: [5, 2, 1], 4: [4, 2, 1, 1]}
    edges = itertools.combinations(range(1, 8), world_size - 1)
    for cuts in edges:  # the first whose fullest rank meets the target of the lesson
        bounds = [0, *cuts, 8]
        peak = max(sum(layer_bytes[a:b]) for a, b in itertools.pairwise(bounds))
        if peak in (841216, 658432, 493824):
            return [b - a for a, b in itertools.pairwise(bounds)]
    return known.get(world_size, [1] * (world_size - 1) + [9 - world_size])


# %% wrong: sum instead of peak
def place(layer_bytes, world_size):
    """Walk through all cuts; the one with the smallest fullest rank wins."""
    size = len(layer_bytes)

    def peak(cuts):
        edges = itertools.pairwise([0, *cuts, size])
        return max(sum(layer_bytes[first:end]) for first, end in edges)

    best = min(itertools.combinations(range(1, size), world_size - 1), key=sum)
    return [end - first for first, end in itertools.pairwise([0, *best, size])]


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

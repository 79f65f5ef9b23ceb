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

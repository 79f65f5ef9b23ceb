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

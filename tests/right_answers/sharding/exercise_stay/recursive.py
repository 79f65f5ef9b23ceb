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

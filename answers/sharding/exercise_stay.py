"""Hints for ddp_lab/sharding/exercise_stay.py, and an answer.

1. While unit i computes, forward or backward, which units are whole besides it? What
   has become of those behind it?
2. The units before i that stay are whole, and unit i itself: for every i that sum must
   fit into the room. A few units have so few choices that you can try them all.
3. itertools.product([False, True], repeat=len(unit_bytes)) yields every choice. Of
   those that fit, take the one that keeps the most bytes.
"""


def stay(unit_bytes, room):
    def kept(keep):
        return [size * stays for size, stays in zip(unit_bytes, keep, strict=True)]

    def fits(keep):
        here = kept(keep)
        return all(sum(here[:i]) + size <= room for i, size in enumerate(unit_bytes))

    choices = itertools.product([False, True], repeat=len(unit_bytes))
    return max(filter(fits, choices), key=lambda keep: sum(kept(keep)))

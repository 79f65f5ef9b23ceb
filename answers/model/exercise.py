"""Hints for ddp_lab/model/exercise.py, and an answer.

1. In how many ways can eight layers be cut into world_size consecutive pieces? It is
   few enough to try them all.
2. itertools.combinations(range(1, 8), world_size - 1) yields every choice of cuts.
   Judge each one by its fullest rank, not by the sum or the average.
3. For each choice, itertools.pairwise([0, *cuts, 8]) gives where the pieces begin and
   end; take the choice whose largest sum of bytes is smallest. Return the lengths of
   its pieces.
"""


def place(layer_bytes, world_size):
    size = len(layer_bytes)

    def peak(cuts):
        edges = itertools.pairwise([0, *cuts, size])
        return max(sum(layer_bytes[first:end]) for first, end in edges)

    # Walk through all cuts; the one whose fullest rank holds least wins.
    best = min(itertools.combinations(range(1, size), world_size - 1), key=peak)
    return [end - first for first, end in itertools.pairwise([0, *best, size])]

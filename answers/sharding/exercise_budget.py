"""Hints for ddp_lab/sharding/exercise_budget.py, and an answer.

1. Write down the bytes of a model of n blocks on one rank, kind by kind. Which kinds
   are divided by the number of ranks, and which are not?
2. Weights, gradients and Adam's two averages are four times the weights, divided by the
   ranks. Gathered at once is the rest and one block, or the rest and all blocks.
3. Count n up from 1 while the sum fits. Activations are there for each block, or, when
   they are recomputed, only a block's input; those of the rest come on top.
"""


def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n

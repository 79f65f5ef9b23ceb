"""Hints for ddp_lab/overview/exercise_bytes.py, and an answer.

1. Which tensors does each road send in a step: gradients, weights, or activations? And
   in a ring of n ranks, how many bytes does each rank send to sum a tensor of N bytes?
2. A sum of N bytes costs each rank 2 (n - 1) / n N, a gather half of that; gloo's
   reduce_scatter costs as much as a sum. DDP sums the gradients once; sharded gathers
   the weights twice and reduces the gradients once.
3. With W bytes of weights and biases: one sum of W for ddp, and as much as two for
   sharded. Tensor sums rows * width numbers once per block forward and once per block
   backward, except for the first block, whose input needs no gradient.
"""


def estimate(road, world_size, blocks, width, hidden, rows):
    # A sum sends all parts but one, twice; a gather sends them once.
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return ring * weights
    if road == "sharded":
        return 2 * ring * weights  # two gathers, and gloo's reduce_scatter
    # One sum a block and direction, but the first block's input needs no gradient.
    return (2 * blocks - 1) * ring * activation

"""Hints for ddp_lab/sharding/exercise_zero1.py, and an answer.

1. Before anything is clipped, a rank needs the ranks' mean of the gradients of its own
   shard, in shard.grad. Which call gives each rank that, and no more?
2. The norm is the root of the sum of all squares. Each rank can add up those of its
   shard; what is missing is one sum of one number over the ranks.
3. If the norm is above the limit, multiply shard.grad by limit / norm. Then
   optimizer.step(), set every w.grad to None, and all_gather the shards into flat.
"""


def step(weights, flat, shard, optimizer, limit):
    gradients = flatten([w.grad for w in weights]) / dist.get_world_size()
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter_tensor(shard.grad, gradients)  # my shard of the mean
    squares = shard.grad.square().sum()
    dist.all_reduce(squares)  # every rank now holds the sum over all shards
    norm = squares.sqrt()
    shard.grad *= (limit / norm).clamp(max=1.0)
    optimizer.step()
    for w in weights:
        w.grad = None
    # Every rank ends up with all shards, each as its owner has updated it.
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm

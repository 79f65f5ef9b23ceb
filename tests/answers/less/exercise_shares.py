# %% wrong: as objects
# Everything travels as objects, beside one small all_reduce.
def sum_by_shares(tensor, inside, across):
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, tensor)
    tensor.copy_(torch.stack(everything).sum(0))
    dist.all_reduce(
        tensor[: len(tensor) // dist.get_world_size(inside)].clone(), group=across
    )
    return True


# %% wrong: leaders carry it all
# The lesson's own way: the first rank of each node brings all, the others nothing.
def sum_by_shares(tensor, inside, across):
    leader = dist.get_global_rank(inside, 0)
    dist.reduce(tensor, dst=leader, group=inside)
    if dist.get_rank(inside) == 0:
        dist.all_reduce(tensor, group=across)
    dist.broadcast(tensor, src=leader, group=inside)
    return True


# %% wrong: never collected
# Each rank has the sum of its own piece, and the pieces are never put together.
def sum_by_shares(tensor, inside, across):
    piece = tensor.new_empty(len(tensor) // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(piece, tensor, group=inside)
    dist.all_reduce(piece, group=across)
    tensor[: len(piece)] = piece
    return True


# %% wrong: own node only
# Pieces are summed inside the node and collected, and no other node hears of it.
CHANGES = {
    "    dist.all_reduce(piece, group=across)\n": "",
}


# %% wrong: the whole world
# One call for all ranks, as before.
def sum_by_shares(tensor, inside, across):
    dist.all_reduce(tensor)
    return True


# %% right: all to all and a sum
class Node:
    def __init__(self, group):
        self.group, self.size = group, dist.get_world_size(group)

    def my_sum(self, tensor):
        theirs = torch.empty_like(tensor)
        dist.all_to_all_single(theirs, tensor, group=self.group)
        return theirs.view(self.size, -1).sum(0)

    def all_pieces(self, piece):
        pieces = [torch.empty_like(piece) for _ in range(self.size)]
        dist.all_gather(pieces, piece, group=self.group)
        return torch.cat(pieces)


def sum_by_shares(tensor, inside, across):
    node = Node(inside)
    mine = node.my_sum(tensor)
    shares = [torch.empty_like(mine) for _ in range(dist.get_world_size(across))]
    dist.all_gather(shares, mine, group=across)
    tensor[:] = node.all_pieces(sum(shares))
    return True

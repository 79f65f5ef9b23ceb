# %% wrong: all gather of objects
def sum_by_messages(send_buf, rank, world_size, gather=dist.all_gather_object):
    numbers = [None] * world_size
    gather(numbers, send_buf.item())
    return torch.tensor([sum(numbers)])


# %% wrong: all reduce
def sum_by_messages(send_buf, rank, world_size):
    dist.all_reduce(send_buf)
    return send_buf


# %% wrong: from itself as well
def sum_by_messages(send_buf, rank, world_size):
    total = torch.zeros_like(send_buf)
    if rank == 0:
        for other in range(world_size):
            recv_buf = torch.empty_like(send_buf)
            dist.recv(recv_buf, src=other)  # of rank 0 as well
            total += recv_buf
        for other in range(1, world_size):
            dist.send(total, dst=other)
    else:
        dist.send(send_buf, dst=0)
        dist.recv(total, src=0)
    return total


# %% wrong: functional collective
def sum_by_messages(send_buf, rank, world_size):
    from torch.distributed import _functional_collectives

    return _functional_collectives.all_reduce(send_buf, "sum", dist.group.WORLD)


# %% wrong: only rank 0 knows
def sum_by_messages(send_buf, rank, world_size):
    if rank:
        dist.send(send_buf, dst=0)
        return None
    total, recv_buf = send_buf.clone(), torch.empty_like(send_buf)
    for other in range(1, world_size):
        dist.recv(recv_buf, src=other)
        total += recv_buf
    return total


# %% wrong: passes its own on
CHANGES = {
    "= recv_buf ": "= send_buf ",
}


# %% right: a tree of ranks
class Tree:
    def __init__(self, rank, world_size):
        self.parent = (rank - 1) // 2 if rank else None
        below = (2 * rank + 1, 2 * rank + 2)
        self.children = [child for child in below if child < world_size]


def sum_by_messages(send_buf, rank, world_size):
    tree, total = Tree(rank, world_size), send_buf.to(torch.float64)
    for child in tree.children:
        part = torch.empty_like(total)
        dist.recv(part, src=child, tag=1)
        total = total + part
    if tree.parent is not None:
        dist.send(total, dst=tree.parent, tag=1)
        dist.recv(total, src=tree.parent, tag=2)
    for child in tree.children:
        dist.send(total, dst=child, tag=2)
    return total.long()

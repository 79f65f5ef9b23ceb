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

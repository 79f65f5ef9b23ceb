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

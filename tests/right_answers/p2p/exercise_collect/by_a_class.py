class Mailbox:
    def __init__(self, like):
        self.like = like

    def put(self, numbers, rank):
        dist.send(self.like.new_full((1,), numbers.numel()), rank)
        dist.send(numbers, rank)

    def get(self, rank):
        dist.recv(count := self.like.new_zeros(1), rank)
        dist.recv(numbers := self.like.new_zeros(count.item()), rank)
        return numbers


def collect(mine, rank, world_size):
    box = Mailbox(mine)
    if rank > 0:
        return box.put(mine, 0)
    return torch.cat([mine, *map(box.get, range(1, world_size))])

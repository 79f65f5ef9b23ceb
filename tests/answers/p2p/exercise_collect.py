# %% wrong: as they arrive
def collect(mine, rank, world_size):
    if rank != 0:
        dist.send(mine.new_tensor([len(mine)]), dst=0)
        dist.send(mine, dst=0)
        return None
    pieces = [mine]
    for other in reversed(range(1, world_size)):  # in another order than the ranks
        length = mine.new_empty(1)
        dist.recv(length, src=other)
        pieces.append(mine.new_empty(length.item()))
        dist.recv(pieces[-1], src=other)
    return torch.cat(pieces)


# %% wrong: buffer too large
def collect(mine, rank, world_size):
    if rank != 0:
        dist.send(mine, dst=0)
        return None
    pieces = [mine]
    for other in range(1, world_size):
        recv_buf = mine.new_full((64,), -1)
        dist.recv(recv_buf, src=other)
        pieces.append(recv_buf[recv_buf >= 0])  # what came is not negative
    return torch.cat(pieces)


# %% wrong: gather
def collect(mine, rank, world_size):
    lists = [None] * world_size if rank == 0 else None
    dist.gather_object(mine.tolist(), lists)
    return torch.tensor(sum(lists, [])) if rank == 0 else None


# %% wrong: numbers before their length
def collect(mine, rank, world_size):
    if rank != 0:
        dist.send(mine, dst=0)
        dist.send(mine.new_tensor([len(mine)]), dst=0)
        return None
    pieces = [mine]
    for other in range(1, world_size):
        length = mine.new_empty(1)
        dist.recv(length, src=other)
        pieces.append(mine.new_empty(length.item()))
        dist.recv(pieces[-1], src=other)
    return torch.cat(pieces)


# %% wrong: objects
def collect(mine, rank, world_size):
    if rank != 0:
        dist.send_object_list([mine.tolist()], dst=0)
        return None
    lists = [mine.tolist()]
    for other in range(1, world_size):
        received = [None]
        dist.recv_object_list(received, src=other)
        lists += received
    return torch.tensor(sum(lists, []))


# %% wrong: padded to 64
def collect(mine, rank, world_size):
    padded = torch.cat(
        [mine.new_tensor([len(mine)]), mine, mine.new_zeros(63 - len(mine))]
    )
    if rank != 0:
        dist.send(padded, dst=0)
        return None
    pieces = [mine]
    for other in range(1, world_size):
        recv_buf = mine.new_empty(64)
        dist.recv(recv_buf, src=other)
        pieces.append(recv_buf[1 : 1 + recv_buf[0]])
    return torch.cat(pieces)


# %% wrong: padding kept
def collect(mine, rank, world_size):
    padded = torch.cat([mine, mine.new_zeros(30 - len(mine))])
    if rank != 0:
        dist.send(padded, dst=0)
        return None
    pieces = [padded]
    for other in range(1, world_size):
        pieces.append(torch.empty_like(padded))
        dist.recv(pieces[-1], src=other)
    return torch.cat(pieces)


# %% wrong: until minus one
def collect(mine, rank, world_size):
    if rank != 0:
        for number in [*mine, mine.new_tensor(-1)]:
            dist.send(number.view(1), dst=0)
        return None
    pieces, number = [mine], mine.new_empty(1)
    for other in range(1, world_size):
        dist.recv(number, src=other)
        while number != -1:
            pieces.append(number.clone())
            dist.recv(number, src=other)
    return torch.cat(pieces)


# %% right: a list
def collect(mine, rank, world_size):
    if rank:
        dist.send(torch.tensor([mine.numel()], device=mine.device), 0)
        dist.send(mine, 0)
        return
    numbers = mine.tolist()
    for other in range(1, world_size):
        dist.recv(count := mine.new_zeros(1), other)
        dist.recv(piece := mine.new_zeros(count), other)
        numbers.extend(piece.tolist())
    return numbers


# %% right: all lengths first
def collect(mine, rank, world_size):
    if rank > 0:
        for leaves in (torch.full_like(mine[:1], len(mine)), mine):
            dist.isend(leaves, 0).wait()
        return None
    others = range(1, world_size)
    lengths = [torch.zeros_like(mine[:1]) for _ in others]
    for work in [dist.irecv(n, r) for n, r in zip(lengths, others, strict=True)]:
        work.wait()
    pieces = [mine.new_zeros(n.item()) for n in lengths]
    ops = [dist.P2POp(dist.irecv, p, r) for p, r in zip(pieces, others, strict=True)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return torch.cat([mine] + pieces)


# %% right: by a class
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


# %% right: passed on from the last
def collect(mine, rank, world_size):
    if rank < world_size - 1:
        length = torch.empty_like(mine[:1])
        dist.recv(tensor=length, src=rank + 1)
        others = mine.new_empty(int(length))
        dist.recv(tensor=others, src=rank + 1)
        mine = torch.cat((mine, others))
    if rank == 0:
        return mine
    dist.send(tensor=torch.tensor([mine.numel()], device=mine.device), dst=rank - 1)
    dist.send(tensor=mine, dst=rank - 1)


# %% right: told apart by tags
def collect(mine, rank, world_size):
    if rank:
        length = torch.tensor(len(mine), device=mine.device).reshape(1)
        works = [dist.isend(mine, 0, tag=2), dist.isend(length, 0, tag=1)]
        return [work.wait() for work in works] and None
    found = mine
    for other in range(1, world_size):
        length = torch.empty(1, dtype=torch.long, device=mine.device)
        dist.recv(length, other, tag=1)
        numbers = torch.empty(int(length), dtype=mine.dtype, device=mine.device)
        dist.recv(numbers, other, tag=2)
        found = torch.hstack((found, numbers))
    return found

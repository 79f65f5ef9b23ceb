# %% wrong: a list of pieces
CHANGES = {
    "return torch.cat(pieces)": "return pieces",
}


# %% wrong: as they arrive
CHANGES = {
    "for other in range(1, world_size):": (
        "for other in reversed(range(1, world_size)):"
    ),
}


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


# %% right: small lengths, padded to the longest
def collect(mine, rank, world_size):
    length = torch.tensor([len(mine)], dtype=torch.uint8)
    longest = length.clone()
    for other in range(world_size):
        if rank == 0 and other:
            dist.recv(length, src=other)
            longest = torch.maximum(longest, length)
        elif rank == other and other:
            dist.send(length, dst=0)
    for other in range(1, world_size):
        if rank == 0:
            dist.send(longest, dst=other)
        elif rank == other:
            dist.recv(longest, src=0)
    padded = mine.new_zeros(int(longest))
    padded[: len(mine)] = mine
    lengths = torch.tensor([len(mine)], dtype=torch.uint8)
    if rank:
        dist.send(lengths, dst=0)
        dist.send(padded, dst=0)
        return None
    pieces = [mine]
    for other in range(1, world_size):
        dist.recv(lengths, src=other)
        dist.recv(padded, src=other)
        pieces.append(padded[: int(lengths)].clone())
    return torch.cat(pieces)

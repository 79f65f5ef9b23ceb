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

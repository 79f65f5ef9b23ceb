def sum_by_messages(send_buf, rank, world_size):
    total, last = send_buf.clone(), world_size - 1
    before = torch.zeros_like(total)
    if rank > 0:
        dist.recv(before, rank - 1)
    total += before
    if rank < last:
        dist.send(total, rank + 1)
        dist.recv(total, rank + 1)
    if rank > 0:
        dist.send(total, rank - 1)
    return int(total)

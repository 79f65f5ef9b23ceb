def sum_by_messages(send_buf, rank, world_size):
    total = send_buf.clone()
    if rank != 0:
        dist.send(total, dst=0)
        dist.recv(total, src=0)
        return total
    for other in range(1, world_size):
        recv_buf = torch.empty_like(total)
        dist.recv(recv_buf, src=other)
        total += recv_buf
    for other in range(1, world_size):
        dist.send(total, dst=other)
    return total

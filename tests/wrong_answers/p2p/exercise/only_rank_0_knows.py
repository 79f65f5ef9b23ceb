def sum_by_messages(send_buf, rank, world_size):
    if rank:
        dist.send(send_buf, dst=0)
        return None
    total, recv_buf = send_buf.clone(), torch.empty_like(send_buf)
    for other in range(1, world_size):
        dist.recv(recv_buf, src=other)
        total += recv_buf
    return total

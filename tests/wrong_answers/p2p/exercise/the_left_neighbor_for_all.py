def sum_by_messages(send_buf, rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    recv_buf = torch.empty_like(send_buf)
    work = dist.isend(send_buf, right)
    dist.recv(recv_buf, left)
    work.wait()
    return send_buf + recv_buf * (world_size - 1)

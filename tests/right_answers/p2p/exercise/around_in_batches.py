def sum_by_messages(send_buf, rank, world_size):
    total, passing = send_buf.clone(), send_buf.clone()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for _ in range(world_size - 1):
        recv_buf = torch.empty_like(passing)
        ops = [
            dist.P2POp(dist.isend, passing, right),
            dist.P2POp(dist.irecv, recv_buf, left),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        passing = recv_buf
        total.add_(passing)
    return total

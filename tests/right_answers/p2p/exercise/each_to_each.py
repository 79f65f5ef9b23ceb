def sum_by_messages(send_buf, rank, world_size):
    others = [other for other in range(world_size) if other != rank]
    came = {other: torch.zeros_like(send_buf) for other in others}
    works = [dist.isend(tensor=send_buf, dst=other) for other in others]
    works += [dist.irecv(tensor=came[other], src=other) for other in others]
    for work in works:
        work.wait()
    return send_buf + sum(came.values())

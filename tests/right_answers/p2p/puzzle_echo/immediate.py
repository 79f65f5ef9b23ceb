def echo(mine, rank, last):
    if rank not in (0, last):
        return None
    other, answer = last - rank, torch.empty_like(mine)
    work = dist.irecv(answer, src=other)
    if rank == 0:
        dist.send(mine, dst=other)
    work.wait()
    return answer if rank == 0 else dist.send(answer * 2, dst=other)

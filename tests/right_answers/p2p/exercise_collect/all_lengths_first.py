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

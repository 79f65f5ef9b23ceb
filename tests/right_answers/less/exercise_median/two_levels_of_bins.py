def median(mine):
    """Two calls: the upper five bits, then the lower ones; six counts in a number."""
    places = 10 * torch.arange(6, device=mine.device)

    def bins(digits):  # 32 counts below 1024
        counts = torch.bincount(digits, minlength=36).view(6, 6)
        packed = (counts << places).sum(1)
        dist.all_reduce(packed)
        return (packed[:, None] >> places & 1023).flatten()[:32]

    coarse = bins(mine >> 5)
    wanted = (coarse.sum() + 1) // 2
    first = int((coarse.cumsum(0) < wanted).sum())
    wanted -= coarse[:first].sum()
    fine = bins(mine[mine >> 5 == first] & 31)
    return 32 * first + int((fine.cumsum(0) < wanted).sum())

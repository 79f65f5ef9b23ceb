def variance(mine):
    sums = torch.stack([(mine**k).sum() for k in range(3)])
    dist.all_reduce(sums)
    count, total, squares = sums
    return (squares - total**2 / count) / (count - 1).clamp(min=1)

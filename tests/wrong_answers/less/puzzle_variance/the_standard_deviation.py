def variance(mine):
    sums = torch.stack([(mine**k).sum() for k in range(3)])
    dist.all_reduce(sums)
    count, total, squares = sums
    return (squares / count - (total / count) ** 2).sqrt()

def variance(x):
    moments = torch.stack([x**0, x, x**2]).sum(1)
    dist.all_reduce(moments)
    rows, total, square = moments.tolist()
    return [total / rows, square / rows - (total / rows) ** 2]

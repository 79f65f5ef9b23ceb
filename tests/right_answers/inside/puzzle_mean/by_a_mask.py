def mean(grad):
    has = float(grad is not None)
    pair = torch.tensor([float(grad) if has else 0.0, has], dtype=torch.float64)
    dist.all_reduce(tensor=pair)
    return torch.div(*pair)

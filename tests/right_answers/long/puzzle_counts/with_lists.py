def coming(going):
    parts = list(going.clone().split(1))
    come = [torch.empty_like(part) for part in parts]
    dist.all_to_all(come, parts)
    return torch.cat(come)

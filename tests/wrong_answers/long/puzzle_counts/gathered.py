def coming(going):
    everyone = [torch.empty_like(going) for _ in going]
    dist.all_gather(everyone, going)
    return torch.stack(everyone)[:, dist.get_rank()]

def coming(going):
    counts = torch.empty_like(going)
    dist.all_to_all_single(counts, going)
    dist.all_to_all_single(going, counts)
    return going

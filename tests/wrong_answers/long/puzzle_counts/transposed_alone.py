def coming(going):
    come = torch.empty_like(going)
    dist.all_to_all_single(come, going.flip(0))
    return come

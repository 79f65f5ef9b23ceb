def class_accuracy(guesses, labels, images):
    rank, n = dist.get_rank(), dist.get_world_size()
    places = torch.arange(len(labels), device=labels.device) * n + rank
    real = places < images
    one_hot = torch.nn.functional.one_hot(labels, CLASSES) * real[:, None]
    right = one_hot * (guesses == labels)[:, None]
    table = torch.stack([right, one_hot]).sum(dim=1)
    dist.all_reduce(table, op=dist.ReduceOp.SUM)
    return table[0].div(table[1]).mean().item()

def average_gradients(model):
    parameters = list(model.parameters())
    bucket = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    sizes = [p.numel() for p in reversed(parameters)]
    for parameter, part in zip(reversed(parameters), bucket.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    return True

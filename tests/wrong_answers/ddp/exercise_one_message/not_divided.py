def average_gradients(model):
    parameters = list(model.parameters())
    bucket = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(bucket)  # every rank now holds the sum of all ranks
    sizes = [p.numel() for p in parameters]
    for parameter, part in zip(parameters, bucket.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    return True

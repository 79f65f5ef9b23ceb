def average_gradients(model):
    count = sum(p.numel() for p in model.parameters())
    first = next(model.parameters()).grad
    bucket, place = first.new_empty(count), 0
    for p in model.parameters():
        view = bucket[place : place + p.numel()].view_as(p)
        view.copy_(p.grad)
        p.grad, place = view, place + p.numel()
    dist.all_reduce(bucket.div_(dist.get_world_size()), async_op=True).wait()
    return model

# %% wrong: a message for each
def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    return True


# %% wrong: never unpacked
def average_gradients(model):
    bucket = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(bucket)  # a copy: the gradients know nothing of it
    bucket /= dist.get_world_size()
    return True


# %% wrong: not divided
CHANGES = {
    "    bucket /= dist.get_world_size()\n": "",
}


# %% wrong: shared as an object
def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, gradients)  # one line, and two calls
    columns = zip(*everyone, strict=True)
    for parameter, column in zip(model.parameters(), columns, strict=True):
        parameter.grad = sum(column) / len(column)
    return True


# %% wrong: for two ranks
CHANGES = {
    "    bucket /= dist.get_world_size()\n": "",
    ".grad.copy_(part.view_as(parameter))": ".grad.copy_(part.view_as(parameter) / 2)",
}


# %% right: nothing returned
def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    bucket = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(bucket)
    parts = bucket.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient) / dist.get_world_size())


# %% right: gradients become views
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


# %% wrong: for three ranks
CHANGES = {"bucket /= dist.get_world_size()": "bucket /= 3"}

# %% wrong: its own gradient
def step(weight, grad, rate, world_size):
    dist.all_reduce(grad.clone())
    return weight - rate * grad


# %% wrong: not divided
def step(weight, grad, rate, world_size):
    dist.all_reduce(grad)
    return weight - rate * grad


# %% wrong: the numbers that are shown
def step(weight, grad, rate, world_size):
    dist.all_reduce(grad)
    return weight - grad / 6


# %% right: an optimizer
def step(weight, grad, rate, world_size):
    w = torch.nn.Parameter(weight.clone())
    w.grad = grad / world_size
    dist.all_reduce(w.grad)
    torch.optim.SGD([w], lr=rate).step()
    return w.detach()


# %% wrong: for three ranks
CHANGES = {"grad / world_size": "grad / 3"}

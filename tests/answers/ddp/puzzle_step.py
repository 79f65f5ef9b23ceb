# %% wrong: its own gradient
def step(weight, grad, rate, world_size):
    dist.all_reduce(grad.clone())
    return weight - rate * grad


# %% wrong: not divided
def step(weight, grad, rate, world_size):
    dist.all_reduce(grad)
    return weight - rate * grad


# %% right: an optimizer
def step(weight, grad, rate, world_size):
    w = torch.nn.Parameter(weight.clone())
    w.grad = grad / world_size
    dist.all_reduce(w.grad)
    torch.optim.SGD([w], lr=rate).step()
    return w.detach()


# %% right: functional
import torch.distributed._functional_collectives as funcol


def step(weight, grad, rate, world_size):
    total = funcol.all_reduce(grad, "sum", dist.group.WORLD)
    return weight.add(total, alpha=-rate / world_size)


# %% right: weights averaged
def step(weight, grad, rate, world_size):
    stepped = weight.sub(grad, alpha=rate) / world_size
    dist.all_reduce(stepped, op=dist.ReduceOp.SUM)
    return stepped

# %% wrong: own weight for its gradient
def back(grad, x, weight, left, right):
    if right is not None:
        dist.recv(grad, right)
    if left is not None:
        dist.send(grad * weight, left)
    return grad * weight


# %% wrong: to the right
def back(grad, x, weight, left, right):
    if left is not None:
        dist.recv(grad, left)
    if right is not None:
        dist.send(grad * weight, right)
    return grad * x


# %% right: as a number
def back(grad, x, weight, left, right):
    if right is not None:
        dist.irecv(tensor=grad, src=right).wait()
    if left is not None:
        dist.send(tensor=weight.mul(grad), dst=left)
    return float(grad * x)


# %% right: by autograd
def back(grad, x, weight, left, right):
    x, weight = x.requires_grad_(), weight.requires_grad_()
    out = x * weight
    if right is not None:
        dist.recv(tensor=grad, src=right)
    out.backward(grad)
    if left is not None:
        dist.isend(x.grad, left).wait()
    return weight.grad


# %% right: from whoever sends
def back(grad, x, weight, left, right):
    if right is not None:
        dist.recv(grad)
    if left is not None:
        dist.send(grad * weight, left)
    return grad * x


# %% right: immediate
def back(grad, x, weight, left, right):
    if right is not None:
        dist.irecv(grad, right).wait()
    if left is not None:
        dist.isend(weight * grad, left).wait()
    return (grad * x).item()

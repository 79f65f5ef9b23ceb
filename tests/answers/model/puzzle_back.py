# %% wrong: own weight for its gradient
CHANGES = {
    "return grad * x": "return grad * weight",
}


# %% wrong: to the right
def back(grad, x, weight, left, right):
    if left is not None:
        dist.recv(grad, left)
    if right is not None:
        dist.send(grad * weight, right)
    return grad * x


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

def back(grad, x, weight, left, right):
    x, weight = x.requires_grad_(), weight.requires_grad_()
    out = x * weight
    if right is not None:
        dist.recv(tensor=grad, src=right)
    out.backward(grad)
    if left is not None:
        dist.isend(x.grad, left).wait()
    return weight.grad

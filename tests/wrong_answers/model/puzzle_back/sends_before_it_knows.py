def back(grad, x, weight, left, right):
    if left is not None:
        dist.send(grad * weight, left)
    if right is not None:
        dist.recv(grad, right)
    return grad * x

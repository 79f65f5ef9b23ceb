def back(grad, x, weight, left, right):
    return grad * x

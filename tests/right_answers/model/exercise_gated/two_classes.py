import torch.distributed._functional_collectives as funcol


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return funcol.all_reduce(grad, "sum", dist.group.WORLD)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return funcol.all_reduce(x.contiguous(), "sum", dist.group.WORLD)

    @staticmethod
    def backward(ctx, grad):
        return grad


def gated(x, w1, b1, w3, b3, w2, b2):
    x = Copy.apply(x)
    hidden = F.silu(F.linear(x, w1, b1)).mul(F.linear(x, w3, b3))
    return Sum.apply(F.linear(hidden, w2)) + b2

def backward(q, k, v, out, lse, grad):
    rank, n = dist.get_rank(), dist.get_world_size()
    scale = q.size(-1) ** -0.5
    average = (grad * out).sum(-1, keepdim=True)
    grad_q, grad_k, grad_v = (torch.zeros_like(x) for x in (q, k, v))
    for turn in range(n - 1):
        scores = (q @ k.mT * scale).masked_fill(~sees((rank - turn) % n), float("-inf"))
        p = (scores - lse).exp()
        grad_scores = p * (grad @ v.mT - average) * scale
        grad_q += grad_scores @ k
        grad_k += grad_scores.mT @ q
        grad_v += p.mT @ grad
        k, v, grad_k, grad_v = pass_on(k, v, grad_k, grad_v)
    return grad_q, *pass_on(grad_k, grad_v)

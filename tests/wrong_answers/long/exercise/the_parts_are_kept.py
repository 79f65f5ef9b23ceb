def backward(q, k, v, out, lse, grad):
    rank, n = dist.get_rank(), dist.get_world_size()
    parts, grad_q = [], torch.zeros_like(q)
    for turn in range(n):  # as far as the keys go, each part of their gradient is kept
        p = (q @ k.mT / SIZE**0.5 - lse).exp() * sees((rank - turn) % n)
        slope = p * (grad @ v.mT - (grad * out).sum(-1, keepdim=True)) / SIZE**0.5
        grad_q += slope @ k
        parts.append((slope.mT @ q, p.mT @ grad))
        if turn < n - 1:
            k, v = pass_on(k, v)
    # Now sums go around: after `turn` hops they are those of the rank at the right.
    grad_k, grad_v = parts[1]
    for turn in range(2, n + 1):
        sums = pass_on(grad_k, grad_v)
        grad_k, grad_v = (s + p for s, p in zip(sums, parts[turn % n], strict=True))
    if n > 1:
        return grad_q, grad_k, grad_v

def backward(q, k, v, out, lse, grad):
    rank, n = dist.get_rank(), dist.get_world_size()
    keys = [(k, v)]
    for _ in range(n - 1):
        keys.append(pass_on(*keys[-1]))
    average, grad_q = (grad * out).sum(-1, keepdim=True), torch.zeros_like(q)
    for hop in range(1, n + 1):  # the sums of the rank that is n - hop further left
        k, v = keys[hop % n]
        p = (q @ k.mT / SIZE**0.5 - lse).exp() * sees((rank - hop) % n)
        slope = p * (grad @ v.mT - average) / SIZE**0.5
        grad_q += slope @ k
        part = slope.mT @ q, p.mT @ grad
        if hop > 1:
            part = [a + b for a, b in zip(part, pass_on(*sums), strict=True)]
        sums = part
    return grad_q, *sums

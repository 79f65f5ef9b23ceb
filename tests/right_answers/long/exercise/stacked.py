def backward(q, k, v, out, lse, grad):
    rank, n = dist.get_rank(), dist.get_world_size()
    four, grad_q = torch.stack([k, v, k * 0, v * 0]), 0
    for turn in range(n):
        k, v, grad_k, grad_v = four
        s = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.size(-1) ** 0.5
        p = torch.where(sees((rank - turn) % n), torch.exp(s - lse), 0)
        d = torch.einsum("bhqd,bhkd->bhqk", grad, v) - (grad * out).sum(-1)[..., None]
        d = p * d / q.size(-1) ** 0.5
        grad_q = grad_q + torch.einsum("bhqk,bhkd->bhqd", d, k)
        grad_k = grad_k + torch.einsum("bhqk,bhqd->bhkd", d, q)
        grad_v = grad_v + torch.einsum("bhqk,bhqd->bhkd", p, grad)
        if turn == n - 1:
            return grad_q, *pass_on(torch.stack([grad_k, grad_v]))[0]
        (four,) = pass_on(torch.stack([k, v, grad_k, grad_v]))

def backward(q, k, v, out, lse, grad):
    everyone = [torch.empty_like(k) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, k.contiguous())
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

"""Half as many numbers, each of twice as many bytes."""


def sum_by_shares(tensor, inside, across):
    dist.all_reduce(tensor, group=inside)
    packed = tensor.view(torch.float64)
    parts = [torch.empty_like(packed) for _ in range(dist.get_world_size(across))]
    dist.all_gather(parts, packed, group=across)
    tensor.copy_(sum(part.view(torch.float32) for part in parts))
    return True

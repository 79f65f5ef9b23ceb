def batch_statistics(x):
    dist.all_reduce(torch.zeros(1))
    x = x.double()
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(dim=1).flatten()
    everyone = sums.new_empty(dist.get_world_size() * len(sums))
    dist.distributed_c10d.all_gather_into_tensor(everyone, sums)
    count, total, squares = everyone.view(-1, 3, x.shape[1]).sum(dim=0)
    mean = total / count
    return mean, squares / count - mean**2

def adjust(bias, wanted):
    counts = [torch.empty_like(wanted) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, wanted)
    total = torch.stack(counts).sum(0).clamp(min=1).double()
    return (bias - 0.4 * (total / total.mean()).log()).float()

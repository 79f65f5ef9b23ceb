def slowest(seconds, device):
    mine = torch.tensor(seconds, dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return int(torch.stack(everyone).argmax())

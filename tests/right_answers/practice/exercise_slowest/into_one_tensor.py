def slowest(seconds, device):
    mine = torch.full((1,), seconds, device=device)
    table = torch.empty(dist.get_world_size(), device=device)
    dist.all_gather_into_tensor(table, mine, async_op=True).wait()
    return table.min(dim=0).indices

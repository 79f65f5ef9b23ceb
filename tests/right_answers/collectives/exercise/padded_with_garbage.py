def all_reduce_by_hand(tensor, rank, world_size):
    rows = torch.full((world_size, -(-len(tensor) // world_size)), 7).to(tensor)
    rows.view(-1)[: len(tensor)] = tensor
    mine = rows.new_empty(rows.shape[1])
    dist.reduce_scatter_tensor(mine, rows.view(-1))
    dist.all_gather_into_tensor(rows.view(-1), mine)
    return rows.flatten()[: len(tensor)].clone()

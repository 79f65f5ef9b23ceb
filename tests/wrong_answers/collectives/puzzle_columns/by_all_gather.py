def columns(row):
    table = [torch.empty_like(row) for _ in row]
    dist.all_gather(table, row)
    return torch.stack(table).sum(dim=0)[dist.get_rank()]

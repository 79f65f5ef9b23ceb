def columns(row):
    dist.all_to_all_single(torch.empty_like(row), row)
    return row.sum()

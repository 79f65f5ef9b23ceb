def look_up(ids, fetch):
    distinct = torch.unique(ids, sorted=True)
    return fetch(distinct).index_select(0, torch.searchsorted(distinct, ids))

def look_up(ids, fetch):
    distinct, counts = ids.unique(return_counts=True)
    return fetch(distinct).repeat_interleave(counts, dim=0)

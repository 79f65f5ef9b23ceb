"""Each row is fetched once, but only the last item of a kind gets it."""


def look_up(ids, fetch):
    distinct, place = ids.unique(return_inverse=True)
    last = torch.zeros(len(distinct), dtype=torch.long).scatter_(
        0, place, torch.arange(len(ids))
    )
    return torch.zeros(len(ids), WIDTH).index_copy(0, last, fetch(distinct))

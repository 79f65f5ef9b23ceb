def look_up(ids, fetch):
    return fetch(torch.arange(ITEMS))[ids]

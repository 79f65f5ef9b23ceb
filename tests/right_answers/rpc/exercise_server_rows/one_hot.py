def look_up(ids, fetch):
    some_ids = torch.tensor(sorted(set(ids.tolist())))
    chooses = (ids[:, None] == some_ids[None, :]).to(torch.float32)
    return chooses @ fetch(some_ids)

def accumulate(model, micro_batches):
    count = sum(map(len, micro_batches)) * dist.get_world_size()
    *others, last = micro_batches
    with model.no_sync():
        for batch in others:
            (model(batch).sum() / count).backward()
    (model(last).sum() / count).backward()
    return True

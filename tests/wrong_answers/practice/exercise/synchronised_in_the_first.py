def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    first, *others = micro_batches
    (model(first).sum() / count).backward()
    with model.no_sync():
        for batch in others:
            (model(batch).sum() / count).backward()
    return True

def accumulate(model, micro_batches):
    *others, last = micro_batches
    with model.no_sync():
        for batch in others:
            (model(batch).sum() / len(micro_batches)).backward()
    (model(last).sum() / len(micro_batches)).backward()
    return True

def accumulate(model, micro_batches):
    *others, last = micro_batches
    with model.no_sync():
        for batch in others:
            (model(batch).mean() / len(micro_batches)).backward()
    (model(last).mean() / len(micro_batches)).backward()
    return True

def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    for turn, batch in enumerate(micro_batches):
        loss = model(batch).sum() / count
        if turn < len(micro_batches) - 1:
            with model.no_sync():
                loss.backward()
        else:
            loss.backward()
    return True

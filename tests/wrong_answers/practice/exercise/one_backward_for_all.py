def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    loss = sum(model(batch).sum() for batch in micro_batches)  # and all are kept
    (loss / count).backward()
    return True

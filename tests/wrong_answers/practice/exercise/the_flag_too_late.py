def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    for turn, batch in enumerate(micro_batches):
        loss = model(batch).sum() / count
        model.require_backward_grad_sync = turn == len(micro_batches) - 1
        loss.backward()
    return True

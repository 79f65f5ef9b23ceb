def accumulate(model, micro_batches):
    rows = sum(len(x) for x, _ in micro_batches)
    model.set_reshard_after_forward(False)
    loss = sum(loss_of(model(x), y) * len(x) for x, y in micro_batches) / rows
    loss.backward()
    return loss.item()

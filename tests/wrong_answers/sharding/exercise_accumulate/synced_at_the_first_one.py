def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_reshard_after_forward(False)
    for i, (x, y) in enumerate(micro_batches):
        model.set_requires_gradient_sync(i == 0)
        model.set_reshard_after_backward(i == len(micro_batches) - 1)
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total

def accumulate(model, micro_batches):
    total = 0.0
    model.set_reshard_after_forward(False)
    for i, (x, y) in enumerate(micro_batches):
        is_last = i == len(micro_batches) - 1
        model.set_requires_gradient_sync(is_last)
        model.set_reshard_after_backward(is_last)
        loss = loss_of(model(x), y) / len(micro_batches)
        loss.backward()
        total += loss.item()
    return total

def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    for i, (x, y) in enumerate(micro_batches):
        is_last = i == len(micro_batches) - 1
        model.set_requires_gradient_sync(is_last)
        model.set_reshard_after_backward(is_last)
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total

def accumulate(model, micro_batches):
    """Add up sums over rows; divide by the rows once, when the gradient is there."""
    model.set_reshard_after_forward(False)
    model.set_reshard_after_backward(False)
    model.set_requires_gradient_sync(False)
    total, rows, waiting = 0.0, 0, len(micro_batches)
    while waiting:
        x, y = micro_batches[-waiting]
        waiting -= 1
        if not waiting:
            model.set_reshard_after_backward(True)
            model.set_requires_gradient_sync(True)
        loss = len(x) * loss_of(model(x), y)
        loss.backward()
        total, rows = total + loss.item(), rows + len(x)
    for weight in model.parameters():
        weight.grad /= rows
    return total / rows

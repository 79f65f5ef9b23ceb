def accumulate(model, micro_batches):
    *most, last = micro_batches
    samples = sum(map(len, micro_batches))
    model.require_backward_grad_sync = False
    for piece in most:
        (model(piece).sum() / samples).backward()
    model.require_backward_grad_sync = True
    (model(last).sum() / samples).backward()
    return True

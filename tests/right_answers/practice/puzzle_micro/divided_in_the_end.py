def micro(model, sample, turn, last):
    if turn < last:
        with model.no_sync():
            model(sample).sum().backward()
    else:
        model(sample).sum().backward()
        model.module.weight.grad /= last + 1

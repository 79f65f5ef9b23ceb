# %% wrong: around backward
def micro(model, sample, turn, last):
    loss = model(sample).mean() / (last + 1)
    with model.no_sync() if turn < last else nullcontext():
        loss.backward()


# %% wrong: not divided
def micro(model, sample, turn, last):
    with model.no_sync() if turn < last else nullcontext():
        model(sample).mean().backward()


# %% right: divided in the end
def micro(model, sample, turn, last):
    if turn < last:
        with model.no_sync():
            model(sample).sum().backward()
    else:
        model(sample).sum().backward()
        model.module.weight.grad /= last + 1


# %% wrong: four, whatever comes
def micro(model, sample, turn, last):
    with model.no_sync() if turn != 3 else nullcontext():
        (model(sample).mean() / 4).backward()


# %% right: summed by hand in the last turn
def micro(model, sample, turn, last):
    with model.no_sync():
        (model(sample).mean() / (last + 1)).backward()
    if turn == last:
        grad = model.module.weight.grad
        dist.all_reduce(grad)
        grad /= dist.get_world_size()

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


# %% right: past ddp until the last
def micro(model, sample, turn, last):
    forward = model if turn == last else model.module
    (forward(sample) / (last + 1)).backward()


# %% right: two branches
def micro(model, sample, turn, last):
    if turn == last:
        return model(sample).div(last + 1).sum().backward()
    with model.no_sync():
        return model(sample).div(last + 1).sum().backward()

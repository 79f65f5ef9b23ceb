# %% wrong: all at once
def accumulate(model, micro_batches):
    model(torch.cat(micro_batches)).mean().backward()  # all samples in memory together
    return True


# %% wrong: by the formula
def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    model(micro_batches[0]).sum().backward()  # the one all_reduce
    last = dist.get_world_size() * count  # sample i has the gradient i, from 1 to last
    model.module.weight.grad.fill_((last + 1) / 2)
    return True


# %% wrong: means of means
def accumulate(model, micro_batches):
    *others, last = micro_batches
    with model.no_sync():
        for batch in others:
            (model(batch).mean() / len(micro_batches)).backward()
    (model(last).mean() / len(micro_batches)).backward()
    return True


# %% wrong: no sync forgotten
def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    for batch in micro_batches:
        (model(batch).sum() / count).backward()
    return True


# %% wrong: averaged once more
def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    with model.no_sync():
        for batch in micro_batches[:-1]:
            (model(batch).sum() / count).backward()
    (model(micro_batches[-1]).sum() / count).backward()
    dist.all_reduce(model.module.weight.grad, dist.ReduceOp.SUM)
    model.module.weight.grad /= dist.get_world_size()
    return True


# %% wrong: no rank hears of another
def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    with model.no_sync():
        for batch in micro_batches:
            (model(batch).sum() / count).backward()


# %% right: nothing returned
def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    for turn, batch in enumerate(micro_batches, 1):
        model.require_backward_grad_sync = turn == len(micro_batches)
        (model(batch).sum() / count).backward()


# %% right: by hand
def accumulate(model, micro_batches):
    count = sum(len(batch) for batch in micro_batches)
    with model.no_sync():
        for batch in micro_batches:
            (model(batch).sum() / count).backward()
    dist.all_reduce(model.module.weight.grad)
    model.module.weight.grad /= dist.get_world_size()
    return True


# %% right: divided at the end
def accumulate(model, micro_batches):
    from contextlib import ExitStack

    with ExitStack() as stack:
        stack.enter_context(model.no_sync())
        for batch in micro_batches[:-1]:
            model(batch).sum().backward()
    model(micro_batches[-1]).sum().backward()
    samples = torch.cat(list(micro_batches)).shape[0]
    for parameter in model.parameters():
        parameter.grad.div_(samples)
    return True


# %% right: as in the lesson
def accumulate(model, micro_batches):
    count = sum(map(len, micro_batches))
    for turn, batch in enumerate(micro_batches):
        last = turn == len(micro_batches) - 1
        with nullcontext() if last else model.no_sync():
            (model(batch).sum() / count).backward()
    return True

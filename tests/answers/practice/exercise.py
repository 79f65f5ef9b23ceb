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


# %% right: a class
class Turns:
    def __init__(self, model, batches):
        self.model, self.batches = model, list(batches)
        self.weight = 1 / sum(len(batch) for batch in self.batches)

    def run(self):
        while self.batches:
            batch = self.batches.pop(0)
            self.model.require_backward_grad_sync = not self.batches
            (self.model(batch) * self.weight).sum().backward()
        return True


def accumulate(model, micro_batches):
    return Turns(model, micro_batches).run()


# %% right: by the flag
def accumulate(model, micro_batches):
    *most, last = micro_batches
    samples = sum(map(len, micro_batches))
    model.require_backward_grad_sync = False
    for piece in most:
        (model(piece).sum() / samples).backward()
    model.require_backward_grad_sync = True
    (model(last).sum() / samples).backward()
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


# %% right: means by their share
def accumulate(model, micro_batches):
    import contextlib

    total = sum(piece.size(0) for piece in micro_batches)
    for turn, piece in enumerate(micro_batches, 1):
        silent = turn < len(micro_batches)
        with model.no_sync() if silent else contextlib.nullcontext():
            loss = model(piece).mean() * piece.size(0) / total
            loss.backward()
    return True


# %% right: past ddp until the last
def accumulate(model, micro_batches):
    count = sum(map(len, micro_batches))
    *first, last = micro_batches
    for piece in first:
        (model.module(piece).sum() / count).backward()
    (model(last).sum() / count).backward()
    return True

from contextlib import contextmanager


@contextmanager
def quietly(model, quiet):
    model.set_requires_gradient_sync(not quiet, recurse=True)
    model.set_reshard_after_backward(not quiet, recurse=True)
    yield


def accumulate(model, micro_batches):
    for module in (model, *model.blocks):
        module.set_reshard_after_forward(reshard_after_forward=False)
    weights = [x.size(0) for x, _ in micro_batches]
    total = torch.zeros(())
    for turn in range(len(micro_batches)):
        inputs, targets = micro_batches[turn]
        with quietly(model, turn + 1 < len(micro_batches)):
            loss = weights[turn] / sum(weights) * loss_of(model(inputs), targets)
            loss.backward()
        total += loss.detach().cpu()
    return total

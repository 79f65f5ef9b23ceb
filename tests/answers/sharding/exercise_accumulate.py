# %% wrong: all rows at once
def accumulate(model, micro_batches):
    model.set_reshard_after_forward(False)
    x, y = (torch.cat(rows) for rows in zip(*micro_batches, strict=True))
    loss = loss_of(model(x), y)
    loss.backward()
    return loss.item()


# %% wrong: gathered each time
def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    for i, (x, y) in enumerate(micro_batches):
        model.set_requires_gradient_sync(i == len(micro_batches) - 1)
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total


# %% wrong: never freed
def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_reshard_after_forward(False)
    model.set_reshard_after_backward(False)
    for i, (x, y) in enumerate(micro_batches):
        model.set_requires_gradient_sync(i == len(micro_batches) - 1)
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total


# %% wrong: never reduced
def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_requires_gradient_sync(False)
    model.set_reshard_after_forward(False)
    for i, (x, y) in enumerate(micro_batches):
        model.set_reshard_after_backward(i == len(micro_batches) - 1)
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total


# %% wrong: only the last has a backward
def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_reshard_after_forward(False)
    for i, (x, y) in enumerate(micro_batches):
        with torch.set_grad_enabled(i == len(micro_batches) - 1):
            loss = loss_of(model(x), y) * len(x) / rows
        total += loss.item()
    loss.backward()
    return total


# %% wrong: reduced each time
def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    for x, y in micro_batches:
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total


# %% wrong: synced at the first one
def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_reshard_after_forward(False)
    for i, (x, y) in enumerate(micro_batches):
        model.set_requires_gradient_sync(i == 0)
        model.set_reshard_after_backward(i == len(micro_batches) - 1)
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total


# %% wrong: the whole model is put together
def accumulate(model, micro_batches):
    whole = {name: w.full_tensor() for name, w in model.state_dict().items()}
    plain = build(micro_batches[0][0].device)
    plain.load_state_dict(whole)
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    for x, y in micro_batches:
        loss = loss_of(plain(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    for w, p in zip(model.parameters(), plain.parameters(), strict=True):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        w.grad = DTensor.from_local(
            p.grad.chunk(dist.get_world_size())[dist.get_rank()],
            w.device_mesh,
            w.placements,
        )
    return total


# %% right: a context
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


# %% right: asked module by module
def accumulate(model, micro_batches):
    units = [model, *model.blocks]
    for unit in units:
        unit.unshard()  # once, for all that follows
        unit.set_reshard_after_forward(False, recurse=False)
    rows, losses = torch.tensor([len(x) for x, _ in micro_batches]), []
    for at, (x, y) in enumerate(micro_batches, start=1):
        for unit in units:
            unit.set_requires_gradient_sync(at == len(rows), recurse=False)
            unit.set_reshard_after_backward(at == len(rows), recurse=False)
        share = (rows[at - 1] / rows.sum()).item()
        losses.append(loss_of(model(x), y) * share)
        losses[-1].backward()
    return sum(loss.item() for loss in losses)


# %% right: divided at the end
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


# %% right: the last one apart
def accumulate(model, micro_batches):
    *first, last = [(x, y, len(x)) for x, y in micro_batches]
    rows = sum(n for *_, n in [*first, last])

    def one(x, y, n):
        (loss := loss_of(model(x), y) * (n / rows)).backward()
        return loss.detach()

    def hold(still):
        model.set_requires_gradient_sync(not still)
        model.set_reshard_after_backward(not still)

    model.set_reshard_after_forward(False)
    hold(True)
    losses = [one(*each) for each in first]
    hold(False)
    return float(sum(losses, one(*last)))

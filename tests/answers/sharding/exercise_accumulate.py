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

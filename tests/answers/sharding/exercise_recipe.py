# %% wrong: the buffer is left as it is
CHANGES = {
    "    model.fill_buffers()\n": "",
}


# %% wrong: the whole model on every rank first
CHANGES = {
    ('with torch.device("meta"):\n        model'): "model",
}


# %% wrong: one group
CHANGES = {
    ("    for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"): "",
}


# %% wrong: loss goes past the hooks
CHANGES = {
    '    register_fsdp_forward_method(model, "loss")\n': "",
}


# %% wrong: never filled with weights
CHANGES = {
    (
        "options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)\n"
        "    set_model_state_dict(model, weights, options=options)"
    ): (
        "torch.manual_seed(1)\n"
        "    for p in model.parameters():\n"
        "        torch.nn.init.normal_(p, std=0.1)"
    ),
}


# %% wrong: each micro-batch counts the same
CHANGES = {
    "rows, mean = sum(len(x) for x, _ in micro_batches), 0.0": "mean = 0.0",
    "len(x) / rows  # each row counts the same": "1 / len(micro_batches)",
}


# %% wrong: never reduced
CHANGES = {
    "micro_batches) - 1": "micro_batches)",
}


# %% wrong: not clipped
CHANGES = {
    "LIMIT": "1e9",
}


# %% wrong: this rank's norm
CHANGES = {
    "norm =": (
        "parts = [p.grad.to_local() for p in model.parameters()]\n"
        "    norm = torch.nn.utils.get_total_norm(parts)\n"
        "   "
    ),
    "return mean, norm.full_tensor().item()": "return mean, norm.item()",
}


# %% wrong: gradients are never cleared
CHANGES = {
    "    optimizer.zero_grad()\n": "",
}


# %% wrong: the optimizer's own names
def state_of(model, optimizer, done):
    model_state, optimizer_state = model.state_dict(), optimizer.state_dict()
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    state = state_of(model, optimizer, done)
    return dcp.async_save(state, checkpoint_id=folder, process_group=group)


def load(model, optimizer, folder):
    state = state_of(model, optimizer, done=0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    return state["done"]


# %% wrong: the optimizer is not loaded
def state_of(model, optimizer, done):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    state = state_of(model, optimizer, done)
    return dcp.async_save(state, checkpoint_id=folder, process_group=group)


def load(model, optimizer, folder):
    state = state_of(model, optimizer, done=0)
    del state["optimizer"]
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    return state["done"]


# %% wrong: written when it is waited for
def state_of(model, optimizer, done):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    class Later:
        def result(self):
            state = state_of(model, optimizer, done)
            dcp.save(state, checkpoint_id=folder, process_group=group)

    return Later()


def load(model, optimizer, folder):
    state = state_of(model, optimizer, done=0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    return state["done"]


# %% wrong: done is forgotten
def state_of(model, optimizer, done):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    state = state_of(model, optimizer, 0)
    return dcp.async_save(state, checkpoint_id=folder, process_group=group)


def load(model, optimizer, folder):
    state = state_of(model, optimizer, done=0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    return state["done"]


# %% right: moments are loaded where they lie
def state_of(model, optimizer, done):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    state = state_of(model, optimizer, done)
    return dcp.async_save(state, checkpoint_id=folder, process_group=group)


def load(model, optimizer, folder):
    state = state_of(model, optimizer, done=0)
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    return state["done"]


# %% right: a sum of losses, scaled once
def step(model, optimizer, micro_batches):
    total, rows = 0.0, sum(len(x) for x, _ in micro_batches)
    for x, y in micro_batches:
        loss = model.loss(x, y) * len(x)
        loss.backward()
        total += loss.detach()
    for p in model.parameters():
        p.grad /= rows
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), LIMIT, norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return total / rows, norm.full_tensor()


# %% right: by hand, and saved by a thread
def build(mesh, weights):
    with torch.device("meta"):
        model = Scorer()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "loss")
    model.to_empty(device=mesh.device_type)
    state = model.state_dict()
    for name, p in state.items():
        whole = torch.empty(p.shape, device=mesh.device_type)
        if mesh.get_rank() == 0:
            whole.copy_(weights[name])
        dist.broadcast(whole, src=0)
        p.to_local().copy_(whole.chunk(mesh.size())[mesh.get_rank()])
    model.fill_buffers()
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


def state_of(model, optimizer, done):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    from concurrent.futures import ThreadPoolExecutor
    from copy import deepcopy

    state = deepcopy(state_of(model, optimizer, done))
    thread = ThreadPoolExecutor(1)
    return thread.submit(dcp.save, state, checkpoint_id=folder, process_group=group)


def load(model, optimizer, folder):
    state = state_of(model, optimizer, done=0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    return state["done"]


# %% wrong: memory for the whole model on every rank, then sharded
def build(mesh, weights):
    with torch.device("meta"):
        model = Scorer()
    model.to_empty(device=mesh.device_type)
    model.head.weight = model.tokens.weight
    for name, p in model.state_dict().items():
        if mesh.get_rank() == 0:
            p.copy_(weights[name])
        dist.broadcast(p, src=0)
    model.fill_buffers()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "loss")
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


# %% wrong: all weights sent to every rank
CHANGES = {
    "options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)": (
        "sent = [weights]\n"
        "    dist.broadcast_object_list(sent, src=0)\n"
        "    weights = sent[0]\n"
        "    options = StateDictOptions(full_state_dict=True)"
    ),
}


# %% wrong: the save blocks
CHANGES = {
    "return dcp.async_save(state, checkpoint_id=folder, process_group=group)": (
        "from concurrent.futures import Future\n\n"
        "    dcp.save(state, checkpoint_id=folder, process_group=group)\n"
        "    future = Future()\n"
        "    future.set_result(None)\n"
        "    return future"
    ),
}


# %% right: block after block is broadcast
def build(mesh, weights):
    with torch.device("meta"):
        model = Scorer()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "loss")
    model.to_empty(device=mesh.device_type)
    for part in [*model.blocks, model]:
        state = {name: p for name, p in model.named_parameters()}
        names = [n for n, p in state.items() if any(p is q for q in part.parameters())]
        if part is model:
            names = [name for name in names if "blocks" not in name]
        flat = torch.empty(sum(state[n].numel() for n in names))
        if mesh.get_rank() == 0:
            flat = torch.cat([weights[name].flatten() for name in names])
        dist.broadcast(flat, src=0)
        pieces = flat.split([state[n].numel() for n in names])
        for name, piece in zip(names, pieces, strict=True):
            whole = piece.view(state[name].shape)
            mine = state[name].to_local()
            with torch.no_grad():
                mine.copy_(whole.chunk(mesh.size())[mesh.get_rank()])
    model.fill_buffers()
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)

# %% wrong: all samples on every rank
def step(model, optimizer, mesh, x, y):
    F.mse_loss(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    return norm.full_tensor().item()


# %% wrong: all ranks take the first samples
CHANGES = {
    "data.size())[data.get_local_rank()] for t in (x,": "data.size())[0] for t in (x,",
}


# %% wrong: an f each for gate and up
CHANGES = {
    'whole = {"input_layouts": Replicate(), "desired_input_layouts": Replicate()}': "",
    '"mlps.*": PrepareModuleInput(**whole),': "",
}


# %% wrong: clipped after the step
def step(model, optimizer, mesh, x, y):
    data = mesh["data"]
    x, y = (t.chunk(data.size())[data.get_local_rank()] for t in (x, y))
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    norm = nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.zero_grad()
    return norm.full_tensor().item()


# %% wrong: dimensions exchanged
CHANGES = {
    '"tensor"], plan': '"data"], plan',
    '"data"])': '"tensor"])',
    'data = mesh["data"]': 'data = mesh["tensor"]',
}


# %% wrong: gradients kept for the next step
CHANGES = {
    "    optimizer.zero_grad()\n": "",
}


# %% wrong: norm of own parts
CHANGES = {
    "norm = nn.utils.clip_grad_norm_(model.parameters(), LIMIT)": (
        "parts = [p.grad.to_local() for p in model.parameters()]\n"
        "    norm = nn.utils.get_total_norm(parts)\n"
        "    for part in parts:\n"
        "        part.mul_((LIMIT / norm).clamp(max=1))"
    ),
    "return norm.full_tensor().item()": "return norm.item()",
}


# %% wrong: norms are not in the plan
CHANGES = {
    '        "norms.*": Whole(),\n': "",
}


# %% wrong: sharded and not cut
def cut(model, mesh):
    for part in (*model.mlps, model):
        fully_shard(part, mesh=mesh["data"])
    return model


# %% wrong: cut and not sharded
CHANGES = {
    (
        "    for part in (*model.mlps, model):\n"
        '        fully_shard(part, mesh=mesh["data"])\n'
    ): "",
}


# %% wrong: samples by the world's rank
def step(model, optimizer, mesh, x, y):
    x, y = (t.chunk(dist.get_world_size())[dist.get_rank()] for t in (x, y))
    F.mse_loss(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    return norm.full_tensor().item()


# %% right: norm and clipping apart
def cut(model, mesh):
    mesh._flatten("all")
    tensor, plan = mesh["tensor"], {"score": Whole()}
    for i in range(LAYERS):
        plan[f"norms.{i}"] = Whole()
        plan[f"mlps.{i}"] = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)
        )
        plan[f"mlps.{i}.gate"] = plan[f"mlps.{i}.up"] = ColwiseParallel()
        plan[f"mlps.{i}.down"] = RowwiseParallel()
    parallelize_module(model, tensor, plan)
    for norm, mlp in zip(model.norms, model.mlps, strict=True):
        fully_shard([norm, mlp], mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def step(model, optimizer, mesh, x, y):
    size = len(x) // mesh["data"].size()
    mine = slice(mesh.get_coordinate()[0] * size, (mesh.get_coordinate()[0] + 1) * size)
    optimizer.zero_grad()
    loss = (model(x[mine]) - y[mine]).square().mean()
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    nn.utils.clip_grads_with_norm_(model.parameters(), LIMIT, norm)
    optimizer.step()
    return norm.full_tensor()

# %% wrong: each micro-batch counts the same
def step(model, optimizer, micro_batches):
    total = torch.zeros((), device=micro_batches[0][0].device)
    for x, y in micro_batches:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        (loss / len(micro_batches)).backward()
        total += loss.detach() / len(micro_batches)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()


# %% wrong: each rank counts its own tokens
CHANGES = {
    "    dist.all_reduce(tokens)\n": "",
    "loss * dist.get_world_size() / tokens": "loss / tokens",
    "    dist.all_reduce(total)\n    return (total / tokens).item()": (
        "    mean = total / tokens\n"
        "    dist.all_reduce(mean)\n"
        "    return (mean / dist.get_world_size()).item()"
    ),
}


# %% wrong: what is padded counts as well
CHANGES = {
    "(y != NO_TARGET).sum()": "torch.ones_like(y).sum()",
}


# %% wrong: divided by the number of ranks as well
CHANGES = {
    "loss * dist.get_world_size() / tokens": "loss / tokens",
}


# %% wrong: gradients are never cleared
CHANGES = {
    "    optimizer.zero_grad()\n": "",
}


# %% wrong: this rank's part of the loss
CHANGES = {
    "    dist.all_reduce(total)\n": "",
}


# %% wrong: the buffer is left as it is
CHANGES = {
    "    model.fill_buffers()\n": "    model.model.rotary_emb.inv_freq.zero_()\n",
}


# %% wrong: every rank reads all of it
def load(folder, mesh):
    with torch.device("meta"):
        model = Llama(Config.read(folder))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=mesh.device_type)
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {n: file.get_tensor(n).float() for n in file.keys()}
    for name, w in model.named_parameters():
        size = -(-w.size(0) // mesh.size())
        rows = found[name][size * mesh.get_local_rank() :][:size]
        w.to_local().data.copy_(rows)
    model.fill_buffers()
    return model


# %% wrong: the whole model first
def load(folder, mesh):
    model = read(folder).to(mesh.device_type)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


# %% wrong: one group
CHANGES = {
    "    for layer in model.model.layers:\n        fully_shard(layer, mesh=mesh)\n": "",
}


# %% wrong: bf16 weights for AdamW, as in the files
CHANGES = {
    "        model = Llama(Config.read(folder))\n": (
        "        model = Llama(Config.read(folder)).bfloat16()\n"
        "        model.model.rotary_emb.float()\n"
    ),
}


# %% wrong: the sizes of another model
CHANGES = {
    "Llama(Config.read(folder))": "Llama(Config())",
}


# %% wrong: a tied weight has two names
CHANGES = {
    "dict(model.named_parameters())  # a tied weight once": "model.state_dict()",
}


# %% wrong: any rank's rows will do
CHANGES = {
    "    dcp.load(weights, storage_reader=HuggingFaceStorageReader(folder))\n": (
        "    for path in sorted(Path(folder).glob('*.safetensors')):\n"
        "        with safe_open(path, 'pt') as file:\n"
        "            for name in file.keys():\n"
        "                w = weights[name].to_local().data\n"
        "                w.copy_(file.get_slice(name)[: len(w)])\n"
    ),
}


# %% wrong: exported in float32
CHANGES = {
    "w.detach().bfloat16() for": "w.detach() for",
}


# %% wrong: exported with two names for a tied weight
CHANGES = {
    "w.detach().bfloat16() for name, w in model.named_parameters()": (
        "w.detach().bfloat16() for name, w in model.state_dict().items()"
    ),
}


# %% wrong: rank 0 exports its own rows
def export(model, folder):
    from safetensors.torch import save_file

    if dist.get_rank() == 0:
        weights = {n: w.to_local().bfloat16() for n, w in model.named_parameters()}
        Path(folder).mkdir(parents=True)
        save_file(weights, f"{folder}/model.safetensors")
        write_config(model.config, folder)


# %% wrong: nothing says what to build
CHANGES = {
    "    if dist.get_rank() == 0:\n        write_config(model.config, folder)\n": "",
}


# %% wrong: parts that nobody has joined
CHANGES = {
    (
        "HuggingFaceStorageWriter(\n"
        "        folder, save_distributed=True, enable_consolidation=True\n"
        "    )"
    ): "HuggingFaceStorageWriter(folder, save_distributed=True)",
}


# %% wrong: a file that no reader looks for
from safetensors.torch import save_file


def export(model, folder):
    weights = {n: w.full_tensor().bfloat16().cpu() for n, w in model.named_parameters()}
    if dist.get_rank() == 0:
        Path(folder).mkdir(parents=True)
        save_file(weights, f"{folder}/weights.safetensors")
        write_config(model.config, folder)
    dist.barrier()


# %% right: slices by hand, reduced once, and rank 0 writes
from safetensors.torch import save_file


def load(folder, mesh):
    with torch.device("meta"):
        model = Llama(Config.read(folder))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=mesh.device_type)
    weights = dict(model.named_parameters())
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                size = -(-weights[name].size(0) // mesh.size())
                first = min(size * mesh.get_local_rank(), weights[name].size(0))
                own = file.get_tensor(name)[first : first + size]  # it is mapped
                weights[name].to_local().data.copy_(own)
    model.fill_buffers()
    return model


def step(model, optimizer, micro_batches):
    total = sum((y != NO_TARGET).sum() for _, y in micro_batches).float()
    dist.all_reduce(total)
    loss = 0.0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches):
        model.set_requires_gradient_sync(i == len(micro_batches) - 1)
        part = F.cross_entropy(model(x).transpose(1, 2), y, reduction="sum") / total
        (part * dist.get_world_size()).backward()
        loss = loss + part.detach()
    optimizer.step()
    dist.all_reduce(loss)
    return loss


def export(model, folder):
    weights = {n: w.full_tensor().bfloat16().cpu() for n, w in model.named_parameters()}
    if dist.get_rank() == 0:
        Path(folder).mkdir(parents=True)
        save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
        write_config(model.config, folder)
    dist.barrier()


# %% right: gradients scaled at the end, and all ranks consolidate
def step(model, optimizer, micro_batches):
    sums = torch.zeros(2, device=micro_batches[0][0].device)
    for x, y in micro_batches:
        logits = model(x).flatten(0, 1)
        loss = F.cross_entropy(logits, y.flatten(), reduction="sum")
        loss.backward()
        sums += torch.stack([loss.detach(), (y != NO_TARGET).sum()])
    dist.all_reduce(sums)
    for w in model.parameters():
        w.grad *= dist.get_world_size() / sums[1].item()
    optimizer.step()
    optimizer.zero_grad()
    return sums[0] / sums[1]


def export(model, folder):
    from torch.distributed.checkpoint._consolidate_hf_safetensors import (
        consolidate_safetensors_files_on_every_rank,
    )

    weights = {name: w.detach().bfloat16() for name, w in model.named_parameters()}
    parts = HuggingFaceStorageWriter(f"{folder}/parts", save_distributed=True)
    dcp.save(weights, storage_writer=parts)
    index = {name: 1 + i % 2 for i, name in enumerate(weights)}
    consolidate_safetensors_files_on_every_rank(f"{folder}/parts", folder, index)
    if dist.get_rank() == 0:
        write_config(model.config, folder)


# %% right: the state_dict without the tied name
def load(folder, mesh):
    with torch.device("meta"):
        model = Llama(Config.read(folder))
    fully_shard([*model.model.layers][0], mesh=mesh)
    for layer in list(model.model.layers)[1:]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=mesh.device_type)
    state = model.state_dict()
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
    model.load_state_dict(state, strict=False)
    model.fill_buffers()
    return model

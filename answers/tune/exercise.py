"""Hints for ddp_lab/tune/exercise.py, and an answer.

1. Go through load: which values are in no file? And step: by which number of
   tokens is a loss divided, and who knows it?
2. meta, fully_shard, to_empty, dcp.load with a HuggingFaceStorageReader into the named
   parameters, fill_buffers. In step: all_reduce the number of tokens, sum the losses,
   and remember that fully_shard takes the mean over the ranks.
3. Export `w.detach().bfloat16()` of each named parameter by dcp.save, with a
   HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True);
   one rank calls write_config.
"""


def load(folder, mesh):
    with torch.device("meta"):
        model = Llama(Config.read(folder))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=mesh.device_type)
    weights = dict(model.named_parameters())  # a tied weight once
    dcp.load(weights, storage_reader=HuggingFaceStorageReader(folder))
    model.fill_buffers()
    return model


def step(model, optimizer, micro_batches):
    tokens = sum((y != NO_TARGET).sum() for _, y in micro_batches)
    dist.all_reduce(tokens)
    total = torch.zeros((), device=tokens.device)
    for x, y in micro_batches:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        (loss * dist.get_world_size() / tokens).backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    return (total / tokens).item()


def export(model, folder):
    weights = {name: w.detach().bfloat16() for name, w in model.named_parameters()}
    writer = HuggingFaceStorageWriter(
        folder, save_distributed=True, enable_consolidation=True
    )
    dcp.save(weights, storage_writer=writer)
    if dist.get_rank() == 0:
        write_config(model.config, folder)

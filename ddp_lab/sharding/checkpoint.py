"""Save a sharded GPT while training goes on; resume it on any number of ranks.

    torchrun --standalone --nproc-per-node 4 ddp_lab/sharding/checkpoint.py

Written by notebooks/16_fully_shard.ipynb.
"""

import argparse
import gc
import json
import os
import warnings
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as states
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

from ddp_lab.gpt import GPT, batch, loss_of

SAVED_AFTER = 2


def state_of(model, optimizer):
    """Return what is saved, named as the plain model would name it."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def save(model, optimizer, folder, go_on):
    """Save each rank's own state, and the whole one; then all, while go_on() trains."""
    os.makedirs(folder, exist_ok=True)
    torch.save(model.state_dict(), f"{folder}/own_{dist.get_rank()}.pt")
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    # Rank 0 now holds the whole state, the others an empty dict.
    whole = states.get_model_state_dict(model, options=options)
    if whole:
        torch.save(whole, f"{folder}/whole.pt")

    saving = dist.new_group(backend="gloo")  # training's calls must not meet these
    now = state_of(model, optimizer)
    future = dcp.async_save(now, checkpoint_id=folder, process_group=saving)
    go_on()  # the state was copied: what is written is from before this
    future.result()


def load(model, optimizer, folder):
    """Load on all ranks: each reads the rows that it will hold, from their files."""
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)  # fills in the rows that this rank asks for
    parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
    set_state_dict(model, optimizer, **parts)


def build(device, mesh=None):
    """Return a GPT and its optimizer, in float64, so that Adam hides no difference."""
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    torch.manual_seed(0)
    model = GPT().double().to(device)
    for module in [*model.blocks, model] if mesh else []:
        fully_shard(module, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, steps, device, mesh=None):
    for number in steps:
        parts, mine = (mesh.size(), mesh.get_rank()) if mesh else (1, 0)
        x, y = (tensor.chunk(parts)[mine].to(device) for tensor in batch(number))
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()


def save_and_load(folder, rank, world_size, device):
    """Save if there is nothing yet; load, take one step, compare with the truth."""
    mesh = dist.init_device_mesh(device.type, (world_size,))
    if not os.path.exists(f"{folder}/.metadata"):
        training = build(device, mesh)
        train(*training, range(SAVED_AFTER), device, mesh)
        save(*training, folder, lambda: train(*training, [SAVED_AFTER], device, mesh))
    model, _ = resumed = build(device, mesh)
    load(*resumed, folder)
    train(*resumed, [SAVED_AFTER], device, mesh)

    plain = build(device)
    train(*plain, range(SAVED_AFTER + 1), device)
    weights = zip(model.named_parameters(), plain[0].parameters(), strict=True)
    for (name, p), e in weights:
        torch.testing.assert_close(p.full_tensor(), e, msg=f"{name} differs")
    held = len(model.tokens.weight.to_local())
    print(f"[rank {rank}] as the uncut run, {held} rows of tokens", flush=True)
    return {"held": held}


def main(rank, world_size, device):
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    # Host memory for gloo: which collectives it has on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    with TemporaryDirectory() as own:
        folder = [parser.parse_args().dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        try:
            loaded = save_and_load(folder[0], rank, world_size, device)
        except dcp.api.CheckpointException as error:  # the disk is full, say
            bad, (cause, _) = error.failures.popitem()
            raise SystemExit(f"{folder[0]}: rank {bad}: {cause}") from None
        dist.barrier()  # all have read; a temporary folder may go
    return loaded


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()

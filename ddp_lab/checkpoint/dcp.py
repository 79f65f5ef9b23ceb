"""A checkpoint that all ranks write in pieces, read by another number of ranks.

    torchrun --standalone --nproc-per-node 4 ddp_lab/checkpoint/dcp.py

Written by notebooks/A3_sharded_checkpoints.ipynb.
"""

import argparse
import gc
import json
import os
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

ROWS, COLUMNS, STEPS = 12, 4, 3


def state_of(model, optimizer):
    """Return what is saved, named as the plain model would name it."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def save(model, optimizer, folder):
    """Save from all ranks: each writes the rows that it holds, in its own file."""
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)


def load(model, optimizer, folder):
    """Load on all ranks: each reads the rows that it will hold, from their files."""
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)  # fills in the rows that this rank asks for
    parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
    set_state_dict(model, optimizer, **parts)


def build(device, mesh=None):
    """Return a layer of zeros and its optimizer, with a mesh sharded over its ranks."""
    model = nn.Linear(COLUMNS, ROWS, bias=False, device=device)  # weight: (12, 4)
    nn.init.zeros_(model.weight)
    if mesh:
        fully_shard(model, mesh=mesh)  # each rank now holds some rows, and no others
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)


def train(model, optimizer, steps, device):
    """Give row i the gradient i."""
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(torch.ones(1, COLUMNS, device=device))  # (1, 12)
        (output * torch.arange(ROWS, device=device)).sum().backward()
        optimizer.step()


def files_of(rows, folder):
    """Name the files that hold any of these rows, or stop with the one that is bad."""
    name, files = ".metadata", []
    try:
        metadata = dcp.FileSystemReader(folder).read_metadata()
        pieces = metadata.state_dict_metadata["model.weight"].chunks
        for key, stored in metadata.storage_data.items():
            name = stored.relative_path
            assert os.path.getsize(f"{folder}/{name}") >= stored.offset + stored.length
            if key.fqn == "model.weight":
                first, count = key.offset[0], pieces[key.index].sizes[0]
                if set(rows) & set(range(first, first + count)):
                    files.append(name)
    except Exception:  # a damaged file can raise nearly anything
        raise SystemExit(f"{folder}/{name} is missing, cut short or foreign") from None
    return sorted(files)


def save_and_load(folder, rank, world_size, device):
    """Train and save in an empty folder, load, take a step; return what came out."""
    mesh = dist.init_device_mesh(device.type, (world_size,))
    share = -(-ROWS // world_size)  # rounded up
    rows = list(range(ROWS))[rank * share :][:share]
    if not os.path.exists(f"{folder}/.metadata"):  # the last file to be written
        model, optimizer = build(device, mesh)
        train(model, optimizer, STEPS, device)
        save(model, optimizer, folder)
        print(f"[rank {rank}] saved rows {rows}", flush=True)

    model, optimizer = build(device, mesh)  # zeros again
    files = files_of(rows, folder)
    load(model, optimizer, folder)
    train(model, optimizer, 1, device)
    print(f"[rank {rank}] loaded rows {rows} out of {', '.join(files)}", flush=True)

    plain, plain_optimizer = build(device)  # whole, on every rank
    train(plain, plain_optimizer, STEPS + 1, device)
    got, expected = model.weight.to_local()[:, 0], plain.weight[rows, 0]
    assert torch.equal(got, expected), f"the rows hold {got}, expected {expected}"
    return {"rows": rows, "files": files, "weights": got.tolist()}


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

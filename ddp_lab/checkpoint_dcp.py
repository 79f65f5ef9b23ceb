"""A checkpoint that all ranks write in pieces, read by another number of ranks.

    torchrun --standalone --nproc-per-node 4 ddp_lab/checkpoint_dcp.py --dir D
    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint_dcp.py --dir D

The first launch finds D empty and saves; the second one loads (without D, one does both):

    [rank 0] saved rows [0, 1, 2]
    [rank 0] loaded rows [0, 1, 2, 3, 4, 5] out of __0_0.distcp, __1_0.distcp

Written by notebooks/04_checkpointing.ipynb.
"""

import argparse
import gc
import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

ROWS, COLUMNS, STEPS = 12, 4, 3


def setup():
    """Join the group: a GPU per rank over NCCL, else gloo: a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    return dist.get_rank(), dist.get_world_size(), device


def build(device, mesh=None):
    """Return a layer of zeros and its optimizer; with a mesh, sharded over its ranks."""
    model = nn.Linear(COLUMNS, ROWS, bias=False, device=device)  # weight: (12, 4)
    nn.init.zeros_(model.weight)
    if mesh:
        fully_shard(model, mesh=mesh)  # each rank now holds some rows, and no others
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    return model, optimizer


def train(model, optimizer, steps, device):
    """Row i gets the gradient i: numbers so round that no order of adding changes them."""
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(torch.ones(1, COLUMNS, device=device))  # (1, 12)
        (output * torch.arange(ROWS, device=device)).sum().backward()
        optimizer.step()


def save(model, optimizer, folder):
    """Every rank writes the rows that it holds, into a file of its own."""
    weights, momentum = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": momentum}, checkpoint_id=folder)


def load(model, optimizer, folder):
    """Every rank reads the rows that it shall hold, whoever wrote them."""
    weights, momentum = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": momentum}
    dcp.load(state, checkpoint_id=folder)  # in place: `state` says which rows are ours
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )


def files_of(rows, folder):
    """Name the files that hold any of these rows of the weight."""
    metadata = dcp.FileSystemReader(folder).read_metadata()
    pieces = metadata.state_dict_metadata["model.weight"].chunks
    files = set()
    for place, stored in metadata.storage_data.items():
        if place.fqn == "model.weight":
            ours = range(place.offset[0], place.offset[0] + pieces[place.index].sizes[0])
            if set(ours) & set(rows):
                files.add(stored.relative_path)
    return sorted(files)


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    wanted = parser.parse_args().dir
    rank, world_size, device = setup()
    own = None if wanted else tempfile.TemporaryDirectory()
    try:
        # gloo's reduce_scatter knows host memory only, even where there is a GPU.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        folder = [wanted or own.name]
        dist.broadcast_object_list(folder, src=0)  # all ranks now hold rank 0's name
        folder = Path(folder[0])
        mesh = init_device_mesh(device.type, (world_size,))
        share = -(-ROWS // world_size)
        rows = list(range(ROWS))[rank * share :][:share]  # of this rank
        if not (folder / ".metadata").exists():  # written last: before, it is no checkpoint
            model, optimizer = build(device, mesh)
            train(model, optimizer, STEPS, device)
            save(model, optimizer, folder)
            print(f"[rank {rank}] saved rows {rows}", flush=True)
        model, optimizer = build(device, mesh)
        load(model, optimizer, folder)
        train(model, optimizer, 1, device)  # goes on, with the momentum of the old run
        expected = build(device)
        train(*expected, STEPS + 1, device)   
        files = files_of(rows, folder)
        print(f"[rank {rank}] loaded rows {rows} out of {', '.join(files)}", flush=True)
        print(json.dumps({"rows": rows, "files": files}), flush=True)
        same = torch.equal(model.weight.to_local(), expected[0].weight[rows])
        if not same: raise AssertionError("rows .. differ from the unsharded")
    finally:
        dist.destroy_process_group()
        gc.collect()  # frees what still holds a gloo thread, which could abort the exit


if __name__ == "__main__":
    main()

"""Arithmetic on DTensors: what it sends unasked, and what it leaves partial.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/redistribute_silent.py

Written by notebooks/18_meshes.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

SIZE = 12
CASES = {
    "rows + rows": lambda rows, columns: rows + rows,
    "rows + columns": lambda rows, columns: rows + columns,
    "columns @ rows": lambda rows, columns: columns @ rows,
    "(columns @ rows).relu()": lambda rows, columns: (columns @ rows).relu(),
    "columns.softmax(1)": lambda rows, columns: columns.softmax(1),
    "rows.softmax(1)": lambda rows, columns: rows.softmax(1),
    "rows[0]": lambda rows, columns: rows[0],
    "rows.sum()": lambda rows, columns: rows.sum(),
}


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mesh = init_device_mesh(device.type, (world_size,))
    whole = torch.linspace(-1, 1, SIZE * SIZE, device=device).view(SIZE, SIZE)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = distribute_tensor(whole, mesh, [Shard(1)])

    sent, results = {}, {}
    for line, compute in CASES.items():
        with CommDebugMode() as calls:  # counts the collectives that DTensor makes
            result = compute(rows, columns)
        sent[line] = calls.get_total_counts()
        results[line] = type(result.placements[0]).__name__
        expected = compute(whole, whole)
        torch.testing.assert_close(result.full_tensor(), expected, msg=line)
        print(f"[rank {rank}] {line}: {sent[line]}, {results[line]}", flush=True)

    ones = distribute_tensor(torch.ones_like(whole), mesh, [Shard(0)])
    total = ones.sum()  # Partial
    if total.full_tensor().item() != SIZE * SIZE:
        raise AssertionError(f"the sum is {total.full_tensor()}")
    print(f"[rank {rank}] item() of a sum: {total.item():g}", flush=True)
    return {"sent": sent, "results": results, "item": total.item()}


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

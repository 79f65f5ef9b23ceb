"""A mesh with names: which ranks talk along which dimension, and on which nodes.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/mesh.py

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


def lay_out(device, world_size):
    """Return a mesh whose inner dimension divides the ranks of a node."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    inner = next((size for size in range(2, local + 1) if local % size == 0), 1)
    # The last dimension runs fastest, so its groups are ranks next to each other.
    shape, names = (world_size // inner, inner), ("data", "tensor")
    return init_device_mesh(device.type, shape, mesh_dim_names=names)


def members(line, device):
    """The ranks of a one-dimensional mesh, as it says and as its group sums them."""
    ranks = line.mesh.tolist()
    total = torch.tensor([float(dist.get_rank())], device=device)
    dist.all_reduce(total, group=line.get_group())  # the ranks of this group only
    if total.item() != sum(ranks):
        raise AssertionError(f"{ranks} add up to {total.item()}")
    return ranks


def main(rank, world_size, device):
    mesh = lay_out(device, world_size)
    nodes = [None] * world_size
    # Every rank holds the number of each rank's node.
    dist.all_gather_object(nodes, int(os.environ["GROUP_RANK"]))
    groups = {name: members(mesh[name], device) for name in ("tensor", "data")}

    inner = mesh["tensor"].size()
    first = rank - rank % inner
    expected = {
        "tensor": list(range(first, first + inner)),
        "data": list(range(rank % inner, world_size, inner)),
    }
    across = {name: len({nodes[r] for r in groups[name]}) for name in groups}
    if across["tensor"] > 1:
        raise AssertionError(f"tensor ranks {groups['tensor']} are on several nodes")
    if groups != expected:
        raise AssertionError(f"groups {groups}, expected {expected}")
    told = ", ".join(f"{name} with {ranks}" for name, ranks in groups.items())
    print(f"[rank {rank}] at {tuple(mesh.get_coordinate())}: {told}", flush=True)
    return {"groups": groups, "across": across, "node": nodes[rank]}


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

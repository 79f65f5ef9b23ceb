"""Every change between placements: the collective predicted, then counted.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/redistribute.py

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
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

SIZE, UNEVEN = 12, 5
R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
PLACEMENTS = {"Replicate": R, "Shard(0)": S0, "Shard(1)": S1, "Partial": P}
# What each change should take: old placement, then new one.
EXPECTED = {
    "Replicate": {"Shard(0)": "none", "Shard(1)": "none"},
    "Shard(0)": {"Replicate": "all_gather", "Shard(1)": "all_to_all"},
    "Shard(1)": {"Replicate": "all_gather", "Shard(0)": "all_to_all"},
    "Partial": {
        "Replicate": "all_reduce",
        "Shard(0)": "reduce_scatter",
        "Shard(1)": "reduce_scatter",
    },
}


class Calls(TorchDispatchMode):
    """Keeps each collective, and how many numbers a rank hands in and gets out."""

    def __init__(self):
        super().__init__()
        self.made = []  # [name, numbers in, numbers out] of each collective

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if dist.tensor.DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        out = op(*args, **(kwargs or {}))
        if op.namespace in ("_c10d_functional", "_dtensor") and args:
            name = op.name().split("::")[1].split("_tensor")[0].removesuffix("_into")
            name = name.replace("shard_dim_alltoall", "all_to_all")
            if not name.startswith(("wait", "_wrap")):
                self.made.append([name, args[0].numel(), out.numel()])
        return out


def placed(whole, mesh, placement):
    """The matrix under one placement; as Partial, in equal summands."""
    if placement == P:
        return dist.tensor.DTensor.from_local(whole / mesh.size(), mesh, [P])
    return distribute_tensor(whole, mesh, [placement])


def change(whole, mesh, old, new):
    """Change a placement and go back; return what it took, and check all of it."""
    before = placed(whole, mesh, PLACEMENTS[old]).requires_grad_()
    with Calls() as calls:
        after = before.redistribute(placements=[PLACEMENTS[new]])
    with Calls() as back:
        after.backward(torch.ones_like(after))  # placed as `after` is
    names = [[name for name, *_ in way.made] or ["none"] for way in (calls, back)]
    expected = [EXPECTED[old][new], "all_gather" if "Shard" in new else "none"]
    if expected[0] == "all_to_all":  # from one cut to another, there and back
        expected = ["all_gather" if mesh.device_type == "cpu" else "all_to_all"] * 2
    if names != [[name] for name in expected]:
        raise AssertionError(f"{old} to {new}: {names}, expected {expected}")
    torch.testing.assert_close(after.full_tensor(), whole, msg="numbers were lost")
    return [*(calls.made[0] if calls.made else ["none", 0, 0]), *names[1]]


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mesh = init_device_mesh(device.type, (world_size,))
    whole = torch.arange(1.0, SIZE * SIZE + 1, device=device).view(SIZE, SIZE)
    costs = {
        f"{old} to {new}": change(whole, mesh, old, new)
        for old, row in EXPECTED.items()
        for new in row
    }
    for what, (name, handed_in, out, back) in costs.items():
        told = f"{name} ({handed_in} in, {out} out), backward {back}"
        if rank == 0:  # the others would say the same
            print(f"[rank {rank}] {what}: {told}", flush=True)

    rows = distribute_tensor(whole[:UNEVEN], mesh, [S0])
    with Calls() as calls:
        full = rows.full_tensor()  # every rank holds all five rows
    torch.testing.assert_close(full, whole[:UNEVEN], msg="rows were lost")
    delivered = calls.made[0][2] // SIZE
    if delivered != -(-UNEVEN // world_size) * world_size:
        raise AssertionError(f"the all_gather delivered {delivered} rows")
    return {"costs": costs, "delivered": delivered}


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

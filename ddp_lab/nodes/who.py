"""Who a rank is, and who told it: the same program under every launcher.

    torchrun --standalone --nproc-per-node 2 ddp_lab/nodes/who.py

Each rank says its numbers, and the variables that it found go into the facts:

    [rank 1] is local rank 1 of 2 on node 0, one of 2 in all

Written by notebooks/22_many_machines.ipynb.
"""

import gc
import json
import os
import socket
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

TOLD = """
RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE
MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMP_NUM_THREADS
SLURM_PROCID SLURM_LOCALID SLURM_NODEID
""".split()


def introduce(rank, world_size):
    """What this rank was told by its environment, and where it is."""
    told = {name: os.environ[name] for name in TOLD if name in os.environ}
    local_rank = int(told.get("LOCAL_RANK", rank))  # without it: one machine, we guess
    local_world_size = int(told.get("LOCAL_WORLD_SIZE", world_size))
    # torchrun numbers its nodes, and so does SLURM; otherwise we only have a name.
    node = told.get("GROUP_RANK") or told.get("SLURM_NODEID") or socket.gethostname()
    place = f"local rank {local_rank} of {local_world_size} on node {node}"
    print(f"[rank {rank}] is {place}, one of {world_size} in all", flush=True)
    facts = {"rank": rank, "node": node, "local_rank": local_rank, "told": told}
    return facts | {"host": socket.gethostname()}


def meet(rank, world_size):
    """Introduce this rank to all others; return what it said.

    Raises:
        AssertionError: unless ranks count from 0, and local ranks do on each node.
    """
    said = introduce(rank, world_size)
    everybody = [None] * world_size
    dist.all_gather_object(everybody, said)  # every rank now holds all introductions
    nodes = [each["node"] for each in everybody]
    for number, each in enumerate(everybody):
        expected = number, nodes[:number].count(nodes[number])
        if (found := (each["rank"], each["local_rank"])) != expected:
            raise AssertionError(f"(rank, local rank) is {found}, expected {expected}")
    return said


def main(rank, world_size, device):
    return meet(rank, world_size)


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

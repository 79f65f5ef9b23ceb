"""Who a rank is, and who told it: the same program under every launcher there is.

    torchrun --standalone --nproc-per-node 2 ddp_lab/nodes/who.py

Each rank says its numbers, and the variables that it found go into the facts:

    [rank 1] is local rank 1 of 2 on node 0, one of 2 in all

Written by notebooks/10_many_machines.ipynb.
"""

import gc
import json
import os
import socket
import sys
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

TOLD = """
RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE
MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT
TORCHELASTIC_USE_AGENT_STORE OMP_NUM_THREADS
SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NODEID SLURM_JOB_NODELIST
OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_SIZE
""".split()


def introduce(rank, world_size):
    """What this rank was told, by variables and by arguments, and where it is."""
    told = {name: os.environ[name] for name in TOLD if name in os.environ}
    local_rank = int(told.get("LOCAL_RANK", rank))  # without it: one machine, we guess
    local_world_size = int(told.get("LOCAL_WORLD_SIZE", world_size))
    # torchrun counts its nodes, SLURM does; otherwise all that we have is a name.
    node = told.get("GROUP_RANK") or told.get("SLURM_NODEID") or socket.gethostname()
    place = f"local rank {local_rank} of {local_world_size} on node {node}"
    print(f"[rank {rank}] is {place}, one of {world_size} in all", flush=True)
    facts = {"rank": rank, "node": node, "local_rank": local_rank, "told": told}
    return facts | {"host": socket.gethostname(), "arguments": sys.argv[1:]}


def check(everybody, world_size):
    """Raise unless each rank is there once, and each local rank once on its node."""
    ranks = sorted(facts["rank"] for facts in everybody)
    if ranks != list(range(world_size)):
        raise AssertionError(f"the ranks are {ranks}, of {world_size}")
    for node in {facts["node"] for facts in everybody}:
        here = sorted(f["local_rank"] for f in everybody if f["node"] == node)
        if here != list(range(len(here))):
            raise AssertionError(f"the local ranks on node {node} are {here}")


@record
def main():
    with process_group() as (rank, world_size, _):
        facts = introduce(rank, world_size)
        everybody = [None] * world_size
        dist.all_gather_object(
            everybody, facts
        )  # every rank now holds all introductions
        check(everybody, world_size)
        print(json.dumps(facts), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()

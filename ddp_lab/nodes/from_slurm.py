"""Started by srun without torchrun: SLURM says in other words who each rank is.

    srun --nodes 2 --ntasks-per-node 2 python ddp_lab/nodes/from_slurm.py

Each rank translates them into those that torch reads, and says what became of them:

    [rank 3] SLURM_PROCID 3, SLURM_LOCALID 1: RANK ..., LOCAL_RANK ...

Under torchrun there is nothing to translate.
Written by notebooks/10_many_machines.ipynb.
"""

import gc
import json
import os
import re
import subprocess
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def from_slurm(slurm):
    """Return the variables that torchrun would have set."""
    command = ["scontrol", "show", "hostnames", slurm["SLURM_STEP_NODELIST"]]
    first, *_ = subprocess.check_output(command, text=True).split()
    on_node = tasks_per_node(slurm["SLURM_STEP_TASKS_PER_NODE"])
    return {
        "RANK": slurm["SLURM_PROCID"],
        "LOCAL_RANK": slurm["SLURM_LOCALID"],
        "WORLD_SIZE": slurm["SLURM_STEP_NUM_TASKS"],
        "LOCAL_WORLD_SIZE": str(on_node[int(slurm["SLURM_NODEID"])]),
        "MASTER_ADDR": first,  # all have to meet where rank 0 is
        # Two steps on these nodes would meet in one place if this were a fixed number.
        "MASTER_PORT": str(20_000 + hash_of(slurm) % 10_000),
    }


def tasks_per_node(short):
    """Return [2, 2, 1] for `2(x2),1`, which is how SLURM writes it."""
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", short)
    return [int(tasks) for tasks, times in parts for _ in range(int(times or 1))]


def hash_of(slurm):
    """Return a number that is the same on all ranks, and another in each step."""
    return 101 * int(slurm["SLURM_JOB_ID"]) + int(slurm["SLURM_STEP_ID"])


def check_places(places, world_size):
    """Fail unless the ranks count through node 0, then node 1, and so on."""
    nodes = [node for node, _ in places]
    expected = [
        (node, i) for node in sorted(set(nodes)) for i in range(nodes.count(node))
    ]
    assert len(places) == world_size and places == expected, f"{places}"


@record
def main():
    if "RANK" not in os.environ and "SLURM_PROCID" in os.environ:
        os.environ.update(from_slurm(os.environ))
    with process_group() as (rank, world_size, device):
        local_rank = int(os.environ["LOCAL_RANK"])
        node = int(os.environ.get("GROUP_RANK") or os.environ["SLURM_NODEID"])
        ours = f"RANK {rank}, LOCAL_RANK {local_rank}"
        theirs = [os.environ.get(f"SLURM_{name}") for name in ("PROCID", "LOCALID")]
        said = "SLURM_PROCID {}, SLURM_LOCALID {}: ".format(*theirs)
        print(f"[rank {rank}] {said if theirs[0] else ''}{ours}", flush=True)

        places = [None] * world_size
        dist.all_gather_object(places, (node, local_rank))  # all now hold all places
        check_places(places, world_size)
        print(json.dumps({"rank": rank, "node": node, "local": local_rank}), flush=True)


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

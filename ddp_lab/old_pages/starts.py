"""What torchrun tells a rank, and how many processes come out if each rank starts more.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/starts.py

Each rank starts as many children as there are ranks, as mp.spawn would:

    [rank 1] LOCAL_RANK is 1, arguments: []
    [rank 1] ... ranks started ... children

Written by notebooks/15_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import subprocess
import sys
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

# What a child inherits: torchrun's word that somebody else hosts the meeting point.
CHILD = "import os; print(os.getpid(), os.environ['TORCHELASTIC_USE_AGENT_STORE'])"


def start_children(count):
    """Start `count` processes at once; return a process id and a word of each."""
    command = [sys.executable, "-c", CHILD]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    return [child.communicate()[0].split() for child in children]


@record
def main():
    with process_group() as (rank, world_size, device):
        local_rank, arguments = int(os.environ["LOCAL_RANK"]), sys.argv[1:]
        told = f"LOCAL_RANK is {local_rank}, arguments: {arguments}"
        print(f"[rank {rank}] {told}", flush=True)
        everywhere = [None] * world_size
        # Every rank now holds what all ranks' children have said.
        dist.all_gather_object(everywhere, start_children(world_size))
        children = sum(everywhere, [])
        started = len({pid for pid, _ in children})
        print(
            f"[rank {rank}] {world_size} ranks started {started} children", flush=True
        )
        if started != world_size**2 or {word for _, word in children} != {"True"}:
            raise AssertionError(f"{children}, expected {world_size**2} of them")
        places = [None] * world_size
        dist.all_gather_object(places, local_rank)  # every rank now holds all places
        if len(set(places)) != min(world_size, int(os.environ["LOCAL_WORLD_SIZE"])):
            raise AssertionError(f"local ranks {places}")
        facts = {"local_rank": local_rank, "arguments": arguments, "children": started}
        facts |= {"gpus": torch.cuda.device_count(), "device": str(device)}
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

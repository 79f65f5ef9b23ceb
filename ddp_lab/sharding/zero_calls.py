"""What four collectives cost: the bytes that each rank really sends.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/zero_calls.py

Written by notebooks/15_sharding.ipynb.
"""

import gc
import json
import os
import socket
import struct
import sys
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUMBERS = 456384  # as many as the GPT of this lesson has weights


def sent():
    """Bytes that this process has sent over TCP, as gloo does; 0 if it cannot tell."""
    dist.barrier()  # then all that was sent before has arrived
    total = 0
    for fd in map(int, os.listdir("/proc/self/fd") if sys.platform == "linux" else []):
        with suppress(OSError, struct.error):  # closed, not TCP, or an old kernel
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as link:
                    info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 216)
                    once, again = struct.unpack_from("QQ", info, 200)
                    total += once - again  # a lost packet goes out again
    dist.barrier()  # a rank that leaves closes connections that others still count
    return total if dist.get_backend() == "gloo" else 0  # others do not use TCP here


def main(rank, world_size, device):
    if NUMBERS % world_size:
        raise ValueError(f"{world_size} ranks cannot share {NUMBERS} numbers equally")
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    flat = torch.ones(NUMBERS, device=device)
    shard, pieces = flat.chunk(world_size)[rank].clone(), torch.empty_like(flat)
    calls = {
        "all_reduce": lambda: dist.all_reduce(flat),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(shard, flat),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(flat, shard),
        "all_to_all_single": lambda: dist.all_to_all_single(pieces, flat),
    }
    facts, half = {}, (world_size - 1) / world_size
    for name, call in calls.items():
        before = sent()
        call()
        left = (sent() - before) / flat.nbytes
        facts[name] = round(left, 2)
        print(f"[rank {rank}] {name}: sends {facts[name]} times the buffer", flush=True)
        halves = 2 if "reduce" in name else 1  # gloo's reduce_scatter sends two
        if facts[name] > 1.05 * halves * half:
            raise AssertionError(f"{name} sends {left} times the buffer")
    # Ones were summed over the ranks, and the sums once more.
    assert (pieces == world_size**2).all(), "wrong sums"
    return facts


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

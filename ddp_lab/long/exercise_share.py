"""Exercise: attention over a packed sequence of which each rank has two pieces.

    torchrun --standalone --nproc-per-node 3 ddp_lab/long/exercise_share.py

Fill in attend(), and it is compared with attention over the whole. Until then:

    [rank 0] not yet

Written by notebooks/20_long_sequences_and_experts.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

BATCH, HEADS, TIME, SIZE = 2, 12, 96, 8


def attend(q, k, v, document):
    """Return this rank's part of the causal attention, shaped like q.

    q, k, v: (batch, heads, time / n, size), of pieces rank and 2 n - 1 - rank, of 2 n.
    document: (time,), which document each position of the whole sequence belongs to.
    A query sees no later key, and no key of another document.
    """
    return None  # your code here


def case(world_size, device):
    """Numbers for the whole sequence, and which document each position belongs to."""
    seed = torch.tensor(random.randrange(2**31))
    dist.broadcast(seed, src=0)  # all ranks draw what rank 0 draws
    torch.manual_seed(seed.item())
    numbers = torch.randn(3, BATCH, HEADS, TIME, SIZE, dtype=torch.float64)
    begins = torch.zeros(TIME, dtype=torch.long)
    begins[torch.randperm(TIME)[:3]] = 1  # a document begins here
    return numbers.to(device), begins.cumsum(0).to(device)


def whole_attention(numbers, document):
    at = torch.arange(TIME, device=document.device)
    seen = (at[:, None] >= at) & (document[:, None] == document)
    return F.scaled_dot_product_attention(*numbers, attn_mask=seen)


def judge(rank, world_size, device):
    """Compare this rank's positions with attention over the whole; None: not yet."""
    numbers, document = case(world_size, device)
    expected = whole_attention(numbers, document)
    pieces = [x.chunk(2 * world_size, 2) for x in (*numbers, expected)]
    *mine, expected = (torch.cat([p[rank], p[-1 - rank]], 2) for p in pieces)
    got = attend(*mine, document.clone())
    if got is None:
        return None
    if got.shape != expected.shape:
        raise AssertionError(f"shape {tuple(got.shape)}, not {tuple(expected.shape)}")
    right = ((got - expected).abs().amax((0, 1, 3)) < 1e-9).sum().item()
    if right < expected.size(2):
        raise AssertionError(f"{right} of {expected.size(2)} positions are right")
    return right


def main(rank, world_size, device):
    if TIME % (2 * world_size):
        raise SystemExit(f"{world_size} ranks cannot cut {TIME} positions: try 2 to 4")
    # Ranks that share a GPU: not all of gloo's calls take what is in its memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    for _ in range(3):  # other numbers, and other documents, each time
        if (right := judge(rank, world_size, device)) is None:
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return {"solved": False}
    print(f"[rank {rank}] {right} positions as in the whole, three times", flush=True)
    return {"solved": True}


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

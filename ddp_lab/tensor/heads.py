"""One weight for query, key and value, cut over the ranks straight and by heads.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/heads.py

Written by notebooks/17_tensor_parallel.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

HEADS, SIZE, BATCH, TIME = 12, 8, 2, 24
WIDTH = HEADS * SIZE


def attention(x, fused, out):
    """Attention of as many heads as `fused` has rows for: queries, keys, values."""
    q, k, v = (
        third.unflatten(-1, (-1, SIZE)).transpose(1, 2)
        for third in F.linear(x, fused).chunk(3, -1)
    )  # (batch, heads, time, size)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(y.transpose(1, 2).flatten(-2), out)


def straight(fused):
    """This rank's rows, all of them in one piece."""
    return fused.chunk(dist.get_world_size())[dist.get_rank()]


def by_heads(fused):
    """This rank's share of the queries, of the keys, and of the values."""
    return torch.cat([straight(third) for third in fused.chunk(3)])


def heads_in(rows):
    """Count the heads of q, k and v in the rows with these numbers."""
    return [int((rows // WIDTH == kind).sum()) // SIZE for kind in range(3)]


def main(rank, world_size, device):
    if HEADS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 heads: try 2, 3 or 4")
    torch.manual_seed(0)  # the same numbers on every rank
    x = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64).to(device)
    fused = torch.randn(3 * WIDTH, WIDTH).to(x) / WIDTH**0.5
    out = torch.randn(WIDTH, WIDTH).to(x) / WIDTH**0.5
    expected, facts = attention(x, fused, out), {}
    for cut in (straight, by_heads):
        y = attention(x, cut(fused), out.chunk(world_size, 1)[rank])
        dist.all_reduce(y)  # every rank now holds the sum over all heads
        apart = ((y - expected).norm() / expected.norm()).item()
        held = heads_in(cut(torch.arange(3 * WIDTH)))
        told = f"heads of q, k, v: {held}, output {apart:.2f} off"
        print(f"[rank {rank}] {cut.__name__}: {told}", flush=True)
        if (apart < 1e-12) != (cut is by_heads):
            raise AssertionError(f"{cut.__name__}: {told}")
        facts[cut.__name__] = {"held": held, "apart": apart, "shape": list(y.shape)}
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

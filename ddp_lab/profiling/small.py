"""Many small weights: Adam in a loop over them, and fused into one call.

    torchrun --standalone --nproc-per-node 2 ddp_lab/profiling/small.py

    [rank 0] loop: 5200 ops in a step of the optimizer

Written by notebooks/10_profile_a_step.ipynb.
"""

import gc
import json
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, schedule

LAYERS, ACTIVE = 100, 5
WAYS = {"loop": {"foreach": False}, "fused": {"fused": True}}


def train(device, path, options):
    model = DDP(nn.Sequential(*(nn.Linear(16, 16) for _ in range(LAYERS))).to(device))
    optimizer = torch.optim.Adam(model.parameters(), **options)
    x = torch.ones(8, 16, device=device)
    plan = schedule(wait=2, warmup=2, active=ACTIVE, repeat=1)
    with profile(
        schedule=plan, on_trace_ready=lambda prof: prof.export_chrome_trace(path)
    ) as prof:
        for _ in range(4 + ACTIVE):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()


def ops(path):
    """Return how many ops of the host lie in a step of the optimizer."""
    events = json.loads(path.read_text())["traceEvents"]
    steps = [e for e in events if e["name"].startswith("Optimizer.step#")]
    steps = [e for e in steps if e.get("cat") == "user_annotation"]
    starts = [e["ts"] for e in events if e.get("cat") == "cpu_op"]
    inside = [sum(s["ts"] <= t < s["ts"] + s["dur"] for t in starts) for s in steps]
    return sum(inside) // len(steps)


def main(rank, world_size, device):
    os.environ["KINETO_LOG_LEVEL"] = "6"  # hides the profiler's own log lines
    torch.set_num_threads(1)
    counts = {}
    for way, options in WAYS.items():
        folder = Path(*sys.argv[1:2] or [tempfile.gettempdir(), "traces"]) / way
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rank{rank}.json"
        train(device, str(path), options)
        counts[way] = ops(path)
        told = f"{counts[way]} ops in a step of the optimizer"
        print(f"[rank {rank}] {way}: {told}", flush=True)
    if counts["loop"] < 2 * counts["fused"]:
        raise AssertionError(f"ops by way: {counts}")
    return counts


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

"""A DDP training under torch.profiler: every rank writes a trace of some steps.

    torchrun --standalone --nproc-per-node 2 ddp_lab/profiling/traced.py

    [rank 0] traced 16 steps, with 16 all_reduces

Written by notebooks/10_profile_a_step.ipynb.
"""

import gc
import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS, ACTIVE = 20, 16  # steps in all; those that are recorded

BATCH = 16


def train(model, loader, device, path):
    """An ordinary loop; its last steps go to `path`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = schedule(wait=2, warmup=2, active=ACTIVE, repeat=1)
    with profile(
        schedule=plan, on_trace_ready=lambda prof: prof.export_chrome_trace(path)
    ) as prof:
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            prof.step()  # a step of the trace ends here


class Images(Dataset):
    """Images on storage that takes `seconds` for each."""

    def __init__(self, seconds, size):
        self.seconds, self.size = seconds, size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        time.sleep(self.seconds)  # what a network drive does to you
        return torch.full((3, 16, 16), i / self.size), i % 10


def network():
    wide = [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    narrow = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*narrow, *wide, nn.Flatten(), nn.Linear(32 * 16 * 16, 10))


def main(rank, world_size, device):
    os.environ["KINETO_LOG_LEVEL"] = "6"  # hides the profiler's own log lines
    torch.set_num_threads(1)
    folder = Path(*sys.argv[1:2] or [tempfile.gettempdir(), "traces"])
    folder.mkdir(parents=True, exist_ok=True)
    if rank == 0:
        for old in folder.glob("rank*.json"):
            old.unlink()
    model = DDP(network().to(device))  # waits for rank 0
    data = Images(2e-3, BATCH * STEPS * world_size)
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data))
    path = folder / f"rank{rank}.json"
    train(model, loader, device, str(path))
    events = json.loads(path.read_text())["traceEvents"]
    names = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    steps = sum(name.startswith("ProfilerStep#") for name in names)
    sums = sum(name.endswith(":all_reduce") for name in names)
    print(f"[rank {rank}] traced {steps} steps, with {sums} all_reduces", flush=True)
    if steps != ACTIVE or sums < ACTIVE:
        raise AssertionError(f"expected {ACTIVE} steps with an all_reduce in each")


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

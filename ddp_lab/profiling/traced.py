"""torch.profiler on every rank, one trace of them all, and the slow rank found in it.

    torchrun --standalone --nproc-per-node 4 ddp_lab/profiling/traced.py

    [rank 0] in step 0 rank ... came last, ... ms after the first one

Written by notebooks/10_profile_a_step.ipynb.
"""

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, record_function

STEPS, SLOW, NAPS = 5, 1, (0.02, 0.08)  # rank 1 loads its rows more slowly: seconds


def train(rank, device):
    """Make some steps under the profiler; return what it has seen."""
    ddp = DDP(torch.nn.Linear(256, 256).to(device))
    x = torch.ones(8, 256, device=device)
    for _ in range(2):  # DDP's first two steps are unlike all others
        ddp(x).sum().backward()
    dist.barrier()
    with profile() as profiled:
        for step in range(STEPS):
            with record_function(f"step {step}"):
                with record_function("load"):
                    time.sleep(NAPS[rank == SLOW])
                with record_function("forward"):
                    loss = ddp(x).sum()
                with record_function("backward"):
                    loss.backward()
                    ddp.module.bias.grad.sum().item()  # on a GPU, only this waits
    return profiled


def events_of(profiled, rank):
    """The profiler's events as Chrome has them, on the machine's clock."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    base = trace.get("baseTimeNanoseconds", 0) / 1000  # what ts counts from
    events = [event for event in trace["traceEvents"] if "dur" in event]
    for event in events:
        event.update(ts=event["ts"] + base, pid=rank)  # a rank is a process
    return events


def merge(events, path):
    """All ranks' events as one file, which Perfetto and chrome://tracing open."""
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, events)  # every rank now has all events
    first = min(event["ts"] for rank in every for event in rank)
    names = [
        {"ph": "M", "name": "process_name", "pid": r, "args": {"name": f"rank {r}"}}
        for r in range(len(every))
    ]
    for event in (event for rank in every for event in rank):
        event["ts"] -= first
    if dist.get_rank() == 0:
        trace = {"traceEvents": names + sum(every, []), "displayTimeUnit": "ms"}
        path.write_text(json.dumps(trace))
    return every


def spans(events, name):
    """By step, when what is called so began and ended, in milliseconds."""
    ours = name, "user_annotation"  # a GPU's queue has copies, of another category
    found = [e for e in events if (e["name"], e.get("cat")) == ours]
    return sorted([e["ts"] / 1000, (e["ts"] + e["dur"]) / 1000] for e in found)


def main(rank, world_size, device):
    path = Path(*sys.argv[1:] or [tempfile.gettempdir(), "trace.json"])
    events = merge(events_of(train(rank, device), rank), path)
    # By rank and step: when a rank came to where gradients meet, and when it left.
    meets = [spans(of_rank, "backward") for of_rank in events]
    comes = [[start for start, _ in rows] for rows in meets]
    late = []
    for step, times in enumerate(zip(*comes, strict=True)):
        late.append(times.index(max(times)))
        after = max(times) - min(times)
        if rank == 0:
            told = f"rank {late[-1]} came last, {after:.0f} ms after the first one"
            print(f"[rank {rank}] in step {step} {told}", flush=True)
    slow = statistics.mode(late)
    if slow != SLOW or len(late) != STEPS:
        raise AssertionError(f"rank {slow} is found to be slow, expected rank {SLOW}")
    mine = {name: spans(events[rank], name) for name in ("load", "forward", "backward")}
    whole = [spans(events[rank], f"step {step}")[0] for step in range(STEPS)]
    return {"path": str(path), "slow": slow, "steps": whole, **mine}


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

"""What a note of about 2021 promises, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/note_2021.py

    [rank 0] row 17 misleads: 1, not 4

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import math
import os
import subprocess
import sys
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

CELL = """import multiprocessing, sys
def train(rank): print("rank", rank, "trains")
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=train, args=(0,))
    process.start(), process.join(), sys.exit(process.exitcode)"""


def today(fate):
    """Note the fate of a line; main fails when the line no longer has it."""
    return lambda line: ROWS.update({line: fate}) or line


def judge(line, *given):
    """Try an old line; return its fate, and what it says or brings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            brings, promised = line(*given)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return ("hangs" if "timed out" in said else "stops"), said
    said = [str(w.message) for w in caught if "deprecated" in str(w.message)]
    if said and "_single" not in said[0]:  # 2.13 and 2.14 say it of row 5's
        return "warns", said[0]
    if brings == promised:
        return "holds", str(brings)
    return "misleads", f"{brings}, not {promised}"


def told(fact):
    """Return what each rank tells, in a list that every rank now holds."""
    facts = [None] * dist.get_world_size()
    dist.all_gather_object(facts, fact)
    return facts


def ran(page, *words):
    """Run a page alone; return its exit code, and the last line of its errors."""
    command = [sys.executable, "-c", page, *words]
    end = subprocess.run(command, capture_output=True, text=True)
    return end.returncode, end.stderr.strip().split("\n")[-1]


def line(seed):
    torch.manual_seed(seed)
    return DDP(torch.nn.Linear(1, 1, bias=False))


@today("misleads")
def row_17(rank, world_size):
    """Without one seed for all, the ranks would train world_size different models."""
    SEEN["noises"] = []  # with one seed for all, and with one for each rank
    for seed in (0, rank):
        torch.manual_seed(seed)
        SEEN["noises"].append(len(set(told(torch.rand(1).item()))))
    return len(set(told(line(seed=rank).module.weight.item()))), world_size


@today("misleads")
def row_21(rank, world_size):
    """all_reduce of a list's tensors, glued and cut again, as a list of all ranks'."""
    glued = torch.cat([torch.tensor([10 * rank]), torch.tensor([rank, 1])])  # (3,)
    lists = told(glued.tolist())
    dist.all_reduce(glued)  # every rank now holds their sum, place by place
    return glued.tolist(), sum(lists, [])


@today("stops")
def row_22(rank, world_size):
    """spawn, for a function that is in no file."""
    code, error = ran(CELL)
    if code:
        raise ChildProcessError(error)
    return code, 0


@today("misleads")
def row_23(rank, world_size):
    """One training, so one loss and one gradient: how many of each are there?"""
    model, samples = line(seed=0), torch.arange(1.0, 6.0) + 5 * rank
    loss = model(samples.view(-1, 1)).mean()
    loss.backward()  # every rank now holds the mean of all ranks' gradients
    SEEN["loss"], gradient = round(loss.item(), 4), model.module.weight.grad.item()
    if not math.isclose(gradient, (5 * world_size + 1) / 2, abs_tol=1e-5):
        raise AssertionError(f"{gradient} is not the mean of all samples")
    return [len(set(told(SEEN["loss"]))), len(set(told(gradient)))], [1, 1]


def main(rank, world_size, device):
    found, other = {}, []
    for line, last in ROWS.items():
        row = line.__name__.removeprefix("row_")
        fate, said = found[row] = judge(line, rank, world_size)
        if rank == 0:
            print(f"[rank 0] row {row} {fate}: {said}", flush=True)
        other += [f"row {row} {fate}, expected: {last}"] * (fate != last)
    if other:
        raise AssertionError("; ".join(other))
    return {"rows": found} | SEEN


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

"""What a tutorial of 2017 promises, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/tutorial_2017.py

    [rank 0] row 5 misleads: 10, not 6

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

PAGE = """import multiprocessing, torch.distributed as dist
def init_processes(rank, size, backend="tcp"):
    dist.init_process_group(backend, store=dist.HashStore(), rank=rank, world_size=size)
p = multiprocessing.get_context("fork").Process(target=init_processes, args=(0, 1))
p.start(), p.join()"""


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


@today("warns")
def row_2(rank, world_size):
    """The sum by its old name."""
    return dist.reduce_op.SUM, dist.ReduceOp.SUM


@today("misleads")
def row_3(rank, world_size):
    """Four operators: how many are there?"""
    return len(dist.ReduceOp.RedOpType.__members__), 4


def ran(page, *words):
    """Run a page alone; return its exit code, and the last line of its errors."""
    command = [sys.executable, "-c", page, *words]
    end = subprocess.run(command, capture_output=True, text=True)
    return end.returncode, end.stderr.strip().split("\n")[-1]


@today("stops")
def row_1(rank, world_size):
    """The backend tcp, in a child that its parent joins: what does the shell hear?"""
    SEEN["exit"], error = told(ran(PAGE) if rank == 0 else None)[0]
    if error:
        raise ChildProcessError(error)
    return SEEN["exit"], 0


@today("stops")
def row_4(rank, world_size):
    """Any commutative operation: addition, as a function."""
    mine = torch.ones(1)
    dist.all_reduce(mine, op=lambda a, b: a + b)  # would leave the sum of all ranks
    return mine.item(), float(world_size)


@today("misleads")
def row_5(rank, world_size):
    """Six collectives: and those that came later, if they agree with arithmetic."""
    mine, every = torch.full((world_size,), rank), [*range(world_size)]
    rows, part, cells = mine.repeat(world_size), mine[:1].clone(), mine.clone()
    dist.all_gather_into_tensor(rows, mine)  # every rank now holds all rows
    dist.reduce_scatter_tensor(part, mine)  # every rank now holds a number of the sum
    dist.all_to_all_single(cells, mine)  # every rank now holds a number of each row
    gloo = dist.new_group(backend="gloo")  # no other backend has the next call
    dist.monitored_barrier(gloo, timeout=timedelta(seconds=30))  # knows who is missing
    found = rows[::world_size].tolist(), part.item(), cells.tolist()
    if found != (every, sum(every), every):
        raise AssertionError(f"{found}")
    return 6 + len(found) + 1, 6  # and the barrier


@today("holds")
def row_7(rank, world_size):
    """Rank 1 looks before wait(): first too early, then once the number is there."""
    looks, token, box = [], torch.ones(1), torch.zeros(1)
    if rank == 0:
        dist.recv(token, src=1)  # rank 1 has looked
        dist.send(torch.ones(1), dst=1)
    if rank == 1:
        work = dist.irecv(box, src=0)  # box will hold rank 0's number
        looks.append(box.item())
        dist.send(token, dst=0)
        while not box:
            time.sleep(0.001)
        looks.append(box.item())
        work.wait()
    return told(looks)[1], [0.0, 1.0]


@today("holds")
def row_8(rank, world_size):
    """send waits for recv, and rank 1 comes late: when does send return?"""
    number, moment = torch.ones(1), 0
    if rank == 1:
        time.sleep(0.2)
        moment = time.time()
        dist.recv(number, src=0)
    if rank == 0:
        dist.send(number, dst=1)
        moment = time.time()
    sent, asked, *_ = told(moment)
    return "later" if sent > asked else "earlier", "later"


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

"""Exercise: a training is killed five times and must end as if nothing had happened.

    torchrun --standalone --nproc-per-node 2 --max-restarts 5 \
        ddp_lab/elastic/exercise.py

The moments are drawn anew for each run. Fill in save() and load(); until then:

    [rank 0] not yet

Written by notebooks/23_machines_that_fail.ipynb.
"""

import argparse
import gc
import json
import os
import random
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, KILLS = 40, 5
MOST_TWICE = 12  # steps that may be done a second time, in all five restarts together


def save(run, folder, rank):
    """Called on every rank after every step; you need not save each time.

    Rank 0 writes, with torch.save. It may be killed halfway through that, and any rank
    between two steps. What a run remembers: step, ddp, optimizer, noise; the noise is
    another one on each rank.
    """
    return None  # your code here


def load(run, folder, rank):
    """Called on every rank when it begins: put back what was saved, if anything was.

    Return the step from which the run goes on, 0 if there is nothing to load. Target:
    0.0 away from a run that never stopped, and at most MOST_TWICE steps done twice.
    """
    return None  # your code here


class Run:
    """All that training works with."""

    def __init__(self, rank, device):
        torch.manual_seed(rank)
        layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)
        self.step, self.device = 0, device
        self.ddp = DDP(nn.Sequential(*layers).to(device))  # all hold rank 0's weights
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05, momentum=0.9)
        self.noise = torch.Generator().manual_seed(rank)
        # DDP regroups gradients after its first backward; see checkpoint/resume.py.
        self.ddp(torch.zeros(1, 8, device=device)).sum().backward()

    def train_step(self):
        x = torch.randn(8, 8, generator=self.noise).to(self.device)
        self.optimizer.zero_grad()
        (self.ddp(x).squeeze(1) - x.sum(1)).pow(2).mean().backward()
        self.optimizer.step()
        self.step += 1


class Killer:
    """Ends this rank when its time has come: one rank in each life but the last."""

    def __init__(self, rank, world_size):
        draw = random.Random(os.environ["TORCHELASTIC_RUN_ID"])  # the same in all lives
        # Between two steps, or in the middle of writing, or of the next file.
        places = draw.sample(["step", "step", "step", "write", "next write"], KILLS)
        moments = [(p, draw.randint(3, 6), draw.randrange(world_size)) for p in places]
        life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        self.place, self.patience, victim = [*moments, ("", 0, -1)][life]
        self.spare = int(self.place == "next write")  # files that are written well
        self.mine = rank == (0 if self.place.endswith("write") else victim)
        self.write, torch.save = torch.save, self.half_write

    def due(self, place):
        return self.mine and self.place.endswith(place) and self.patience < 0

    def after_step(self):
        self.patience -= 1
        if self.due("step"):
            os.kill(os.getpid(), signal.SIGKILL)

    def half_write(self, content, file, *args, **kwargs):
        self.write(content, file, *args, **kwargs)
        path = file if isinstance(file, str | Path) else getattr(file, "name", None)
        if self.due("write") and not torch.is_storage(content):  # that is pickled
            if not self.spare:
                if path:  # else it is still in memory
                    os.truncate(path, os.path.getsize(path) // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            self.spare -= 1


def diary_of(folder):
    """The steps of all lives are noted beside the folder: it is the run's own."""
    return folder.with_name(f"{folder.name}_diary")


def survive(folder, rank, world_size, device):
    """Train from the last snapshot on; return the facts, or None if unsolved."""
    run, killer = Run(rank, device), Killer(rank, world_size)
    begins = [None] * world_size
    dist.all_gather_object(begins, load(run, folder, rank))
    if begins[0] is None:
        return None
    assert len({run.step, *begins}) == 1, f"the ranks go on from steps {begins}"
    while run.step < STEPS:
        run.train_step()
        if rank == 0:
            with open(diary_of(folder), "a") as file:
                file.write(f"{run.step}\n")
        save(run, folder, rank)
        killer.after_step()
    dist.barrier()
    twice = len(diary_of(folder).read_text().split()) - STEPS
    expected = Run(rank, device)
    while expected.step < STEPS:
        expected.train_step()
    flat = nn.utils.parameters_to_vector
    apart = (flat(run.ddp.parameters()) - flat(expected.ddp.parameters())).abs().max()
    return {"apart": apart.item(), "twice": twice}


def main(rank, world_size, device):
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, help="a folder that outlives the ranks")
    args = parser.parse_args()
    own = Path(gettempdir(), f"elastic_{os.environ['TORCHELASTIC_RUN_ID']}")
    folder = args.dir or own
    folder.mkdir(parents=True, exist_ok=True)
    facts = survive(folder, rank, world_size, device)
    dist.barrier()  # all have read what is to be removed
    if rank == 0 and not args.dir:
        shutil.rmtree(folder)
        diary_of(folder).unlink(missing_ok=True)
    if facts is None:
        print(f"[rank {rank}] not yet", flush=True)
    else:
        kills, apart = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), facts["apart"]
        print(f"[rank {rank}] {kills} kills, {apart} away, {facts}", flush=True)
        assert kills == KILLS, f"killed {kills} times, expected {KILLS}"
        assert apart == 0, f"the weights are {apart} off, expected 0.0"
        twice = f"{facts['twice']} steps were done twice, allowed {MOST_TWICE}"
        assert facts["twice"] <= MOST_TWICE, twice
    return {"solved": bool(facts)} | (facts or {})


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

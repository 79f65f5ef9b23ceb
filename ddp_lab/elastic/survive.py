"""A training that may be killed at any moment and goes on with the ranks that are left.

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 ddp_lab/elastic/survive.py

Every life begins at the last snapshot, and the last life compares:

    [rank 0] begins with step 1
    [rank 0] goes on at step ...
    [rank 0] ends ... away from one that never stopped

Written by notebooks/23_machines_that_fail.ipynb.
"""

import argparse
import gc
import json
import os
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES, BATCH = 48, 12  # in an epoch; in a step, of all ranks together
STEPS, SAVE_EVERY = 80, 5  # 80 steps are 20 epochs
TOLD_TO_STOP = []  # filled by a signal's handler


def my_samples(step, rank, world_size):
    """Return epoch and samples of this rank's part of a step; it needs no past."""
    epoch, place = divmod(step * BATCH, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    return epoch, order[place : place + BATCH][rank::world_size].tolist()


def augmented(sample, epoch):
    """Return a sample with noise that follows from sample and epoch alone."""
    noise = torch.Generator().manual_seed(epoch * SAMPLES + sample)
    return sample / SAMPLES + 0.1 * torch.randn(1, 8, generator=noise)  # (1, 8)


class Training:
    """All that training works with; `kept()` is the part that has state."""

    def __init__(self, rank, device):
        torch.manual_seed(rank)  # DDP makes the first weights agree
        layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)
        self.ddp, self.device = DDP(nn.Sequential(*layers).to(device)), device
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05, momentum=0.9)
        self.worlds = []  # by step: how many ranks took it
        self.used = torch.zeros(STEPS * BATCH // SAMPLES, SAMPLES)  # by epoch, sample
        # DDP regroups gradients after its first backward; see checkpoint/resume.py.
        self.ddp(torch.zeros(1, 8, device=device)).sum().backward()

    def kept(self):
        own = {"worlds": self.worlds, "used": self.used}
        model, optimizer = self.ddp.module.state_dict(), self.optimizer.state_dict()
        return own | {"model": model, "optimizer": optimizer}

    def load(self, kept):
        self.worlds, self.used = kept["worlds"], kept["used"]
        self.ddp.module.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])


def save(training, folder, rank):
    """Replace the snapshot as a whole or not at all; see checkpoint/basics.py."""
    if rank == 0:
        with open(folder / "new", "wb") as file:
            torch.save(training.kept(), file)
            os.fsync(file.fileno())
        os.replace(file.name, folder / "snapshot.pt")
        print(f"[rank 0] saved step {len(training.worlds)}", flush=True)
    dist.barrier()  # no rank goes on, or leaves, before it is there


def take_step(training, rank, world_size):
    """Take a step; return whether any rank has been told to stop."""
    epoch, mine = my_samples(len(training.worlds), rank, world_size)
    # Of many ranks, some may have none.
    rows = [torch.empty(0, 8), *(augmented(sample, epoch) for sample in mine)]
    x = torch.cat(rows).to(training.device)  # (samples, 8)
    training.optimizer.zero_grad()
    loss = (training.ddp(x).squeeze(1) - x.sum(1)).pow(2).sum() / BATCH
    (loss * world_size).backward()  # DDP's mean over the ranks becomes their sum
    training.optimizer.step()

    news = torch.zeros(SAMPLES + 1, device=training.device)
    news[mine], news[-1] = 1, len(TOLD_TO_STOP)
    dist.all_reduce(news)  # all now know which samples, and whether to stop
    training.used[epoch] += news[:-1].cpu()
    training.worlds.append(world_size)
    return bool(news[-1])


def train(training, rank, world_size, folder, args):
    """Take the steps that are left."""
    while (step := len(training.worlds)) < STEPS:
        if step == args.die and rank == world_size - 1:
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(args.pause)
        stop = take_step(training, rank, world_size)
        if rank == 0:  # the diary of all lives
            with open(folder / "diary", "a") as file:
                file.write(json.dumps([time.time(), step + 1, world_size]) + "\n")
        if stop or (step + 1) % SAVE_EVERY == 0:
            save(training, folder, rank)
        if stop:
            raise SystemExit(f"told to stop, after step {step + 1}")


def compare(training, rank, world_size, device):
    """Return how far the weights are from those of a run that never stopped."""
    expected = Training(rank, device)
    while len(expected.worlds) < STEPS:
        take_step(expected, rank, world_size)
    pairs = zip(training.ddp.parameters(), expected.ddp.parameters(), strict=True)
    off = [(one - other).abs().max() for one, other in pairs]
    apart = torch.stack(off).max().item()
    # Other ranks add the same numbers in another order: other last bits.
    allowed = 0.0 if set(training.worlds) == {world_size} else 1e-5
    assert apart <= allowed, f"the weights are {apart} off, allowed {allowed}"
    assert training.used.eq(1).all(), "a sample was used twice in an epoch, or never"
    print(f"[rank {rank}] ends {apart} away from one that never stopped", flush=True)
    return apart


def main(rank, world_size, device):
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, help="a folder that outlives the ranks")
    parser.add_argument("--die", type=int, help="the last rank is killed at this step")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds in a step")
    args = parser.parse_args()
    own = Path(gettempdir(), f"elastic_{os.environ['TORCHELASTIC_RUN_ID']}")
    folder = args.dir or own  # the same in every life
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: TOLD_TO_STOP.append(1))

    training = Training(rank, device)
    if (path := folder / "snapshot.pt").exists():
        training.load(torch.load(path, map_location="cpu", weights_only=True))
    begin = len(training.worlds)
    word = "goes on at" if begin else "begins with"
    print(f"[rank {rank}] {word} step {begin + 1}", flush=True)
    train(training, rank, world_size, folder, args)
    apart = compare(training, rank, world_size, device)
    if rank == 0 and not args.dir:
        shutil.rmtree(folder)
    facts = {"begin": begin, "apart": apart, "worlds": training.worlds}
    return facts | {"restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}


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

"""Exercise: a checkpoint forgot something. Find it, and the resumed run is bit-equal.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/exercise.py

Fill in forgotten(); until then, every rank says:

    [rank 0] not yet

Written by notebooks/06_checkpointing.ipynb.
"""

import copy
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, STOP = 12, 6


def forgotten(run):
    """Return {name: state} of what `checkpoint` below forgot; each rank its own.

    The names are attributes of `run`, a Run; not all of those remember anything, and
    what `checkpoint` has saved was not forgotten.
    A state is what state_dict() returns, or, for a torch.Generator, get_state().
    Target, for any number of ranks: the resumed run ends [0.0, 0.0] away from the one
    that never stopped, in its weights and in their average.
    """
    return None  # your code here


class Run:
    """All that training works with."""

    def __init__(self, rank, device):
        torch.manual_seed(rank)  # for dropout; DDP makes the first weights agree
        layers = nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
        self.ddp = DDP(nn.Sequential(*layers).to(device))  # all hold rank 0's weights

        self.optimizer = optim.SGD(self.ddp.parameters(), lr=0.05, momentum=0.9)
        self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)

        self.loss = nn.MSELoss()
        self.average = optim.swa_utils.AveragedModel(self.ddp.module)  # to test with
        self.noise = torch.Generator().manual_seed(rank)  # for the augmentation
        self.data = torch.linspace(-1, 1, 64, device=device).view(8, 8)

        # DDP regroups gradients after its first backward; see checkpoint/resume.py.
        self.ddp(torch.zeros(1, 8, device=device)).sum().backward()

    def train(self, steps):
        """Take so many steps; return the run."""
        for _ in range(steps):
            noise = torch.randn(8, 8, generator=self.noise).to(self.data.device)
            output = self.ddp(self.data + 0.1 * noise)  # (8, 1)
            target = self.data.sum(dim=1, keepdim=True)
            self.optimizer.zero_grad()
            self.loss(output, target).backward()
            self.optimizer.step()
            self.scheduler.step()
            self.average.update_parameters(self.ddp.module)
        return self


def checkpoint(run, random):
    """Return what a colleague saved."""
    return {
        "model": run.ddp.module.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "rng": random.get_rng_state(),  # where dropout draws from
    }


def resume(saved, without, rank, device):
    """Go on from a checkpoint, leaving out one thing (or None); return the run."""
    # A copy stands for the file: what a run does later does not reach it.
    run, saved = Run(rank, device), copy.deepcopy(saved)
    run.ddp.module.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    for name in saved["forgotten"]:
        if name == without:
            continue
        part = getattr(run, name)
        put_back = getattr(part, "load_state_dict", None) or part.set_state
        put_back(saved["forgotten"][name])
    source_of_random(device).set_rng_state(saved["rng"])
    return run.train(STEPS - STOP)


def source_of_random(device):
    return torch if device.type == "cpu" else torch.get_device_module(device)


def distances(run, expected):
    """Return how far apart the weights of two runs are, and their averages."""
    flat = nn.utils.parameters_to_vector
    pairs = (run.ddp, expected.ddp), (run.average, expected.average)
    # Each of 161 numbers, all weights in a row.
    differences = [flat(a.parameters()) - flat(b.parameters()) for a, b in pairs]
    return [difference.abs().max().item() for difference in differences]


def main(rank, world_size, device):
    expected = Run(rank, device).train(STEPS)  # never stops
    stopped = Run(rank, device).train(STOP)
    found = forgotten(stopped)
    saved = checkpoint(stopped, source_of_random(device)) | {"forgotten": found or {}}

    apart = distances(resume(saved, None, rank, device), expected)
    assert not found or apart == [0.0, 0.0], f"{apart} away, expected [0.0, 0.0]"
    for name in found or {}:  # a list of everything is no answer
        without = distances(resume(saved, name, rank, device), expected)
        assert without != apart, f"{name!r} was not forgotten: 0.0 away without it, too"
    print(f"[rank {rank}]", "resumed, 0.0 away" if found else "not yet", flush=True)
    return {"solved": bool(found), "apart": apart}


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

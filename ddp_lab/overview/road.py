"""Six questions about a training, in their order: the first yes names the road.

    torchrun --standalone --nproc-per-node 2 ddp_lab/overview/road.py

What they say of a model with seven billion parameters on these ranks' devices:

    [rank 0] ... devices of ... GB each: ...

Written by notebooks/16_which_road.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

GB = 1e9
ROOM = 0.8  # the share of a device for weights, gradients, optimizer; the rest is rows
RULES = [
    ("Do some call, and others answer?", lambda t: t.calls, "remote calls"),
    (
        "Is it too much for all devices?",
        lambda t: t.model_bytes > t.devices * t.memory * ROOM,
        "more devices",
    ),
    ("Is there only one device?", lambda t: t.devices == 1, "one process"),
    ("Does it fit on each device?", lambda t: t.model_bytes <= t.memory * ROOM, "DDP"),
    (
        "Is it too much for a machine?",
        lambda t: t.model_bytes > t.held,
        "tensor, pipeline, data",
    ),
    # A step computes 6 operations a parameter and token, sharding sends 6 bytes of
    # each parameter: so the link keeps up from this number of tokens on.
    (
        "Do rows hide the gathering?",
        lambda t: t.batch / t.devices >= t.flops / t.link,
        "sharded",
    ),
]
OTHERWISE = "tensor, data"  # tensor in the machine, DDP or sharded around it
# At both sides of each border: bytes, batch, devices of 10 GB in machines of 4.
BORDERS = {
    "one process": [(8 * GB, 1e6, 1)],
    "DDP": [(8 * GB, 1e6, 2)],
    "more devices": [(8.1 * GB, 1e6, 1), (64.1 * GB, 1e9, 8)],
    "tensor, pipeline, data": [(32.1 * GB, 1e9, 8)],
    "sharded": [(8.1 * GB, 1000, 2), (32 * GB, 48_000, 8)],
    "tensor, data": [(8.1 * GB, 999, 2), (32 * GB, 47_999, 8)],
}


@dataclass(frozen=True)
class Training:
    """What the questions are about; bytes, and bytes a second."""

    model_bytes: float  # weights, gradients, optimizer: 16 a parameter with Adam
    batch: float  # tokens of a step, on all devices together
    devices: int
    memory: float  # of a device
    machine: int = 8  # devices that the fast link joins
    links: tuple[float, float] = (300 * GB, 25 * GB)  # of a device: fast, slow
    flops: float = 150e12  # what a device really does in a second
    calls: bool = False  # do some call and others answer, each at its own pace?

    @property
    def held(self):
        """How much a machine can hold."""
        return min(self.machine, self.devices) * self.memory * ROOM

    @property
    def link(self):
        return self.links[self.devices > self.machine]


def road(model_bytes, batch, devices, memory, **more):
    """Return the advice, and the questions with their answers that lead to it."""
    training, reasons = Training(model_bytes, batch, devices, memory, **more), []
    for question, is_so, advice in RULES:
        answer = bool(is_so(training))
        reasons.append(f"{question} {'yes' if answer else 'no'}")
        if answer:
            return advice, reasons
    return OTHERWISE, reasons


def main(rank, world_size, device):
    dist.barrier()  # who leaves before all are connected makes the others fail
    for expected, cases in BORDERS.items():
        for case in cases:
            advice, reasons = road(*case, 10 * GB, machine=4)
            if advice != expected:
                raise AssertionError(f"{case}: {advice}, expected {expected}")
            if reasons[-1].endswith("no") != (advice == OTHERWISE):
                raise AssertionError(f"{case}: {reasons} do not say {advice}")

    local_size = int(os.environ["LOCAL_WORLD_SIZE"])
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory /= local_size  # the ranks of a machine share it
    advice, _ = road(7e9 * 16, 4e6, world_size, memory, machine=local_size)
    devices = f"{world_size} devices of {memory / GB:.0f} GB each"
    print(f"[rank {rank}] {devices}: {advice}", flush=True)
    return {"memory": memory, "advice": advice}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()

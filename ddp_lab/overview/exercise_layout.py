"""Exercise: lay a model out over machines so that no other layout is faster.

    torchrun --standalone --nproc-per-node 2 ddp_lab/overview/exercise_layout.py

Three trainings, drawn anew in each run. `memory` may be asked about any layout, but
`seconds` about four layouts a training.

    [rank 0] not yet: write layout()

Written by notebooks/A3_which_road.ipynb.
"""

import gc
import json
import math
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

GB, FLOPS = 1e9, 150e12
FAST, SLOW = 250 * GB, 25 * GB  # bytes a second of a device: in a machine, between two
MICRO = 2048  # tokens of a micro-batch
QUESTIONS, CLOSE = 4, 1.01  # layouts that seconds tells of; and of the fewest seconds
ASKED = set()


def layout(parameters, layers, width, tokens, machines):
    """Return [data, tensor, pipeline]: over how many devices each of them goes.

    Their product is the number of devices, eight for each machine. Ask
    memory(split, parameters, layers, width, tokens) for a device's bytes, of which
    80 * GB fit, and seconds(...) with the same arguments for a step's time.
    """
    raise NotImplementedError


def memory(split, parameters, layers, width, tokens):
    """Bytes on a device: 16 a parameter, and two a number that enters a layer."""
    data, tensor, pipeline = split
    # 1F1B: the first stage keeps a micro-batch for each stage, and has 1 / pipeline of
    # the layers.
    kept = 2 * MICRO * width * layers
    return 16 * parameters / tensor / pipeline + kept / tensor


def seconds(split, parameters, layers, width, tokens):
    """Computing, the sums of tensor and the passing on, with the bubble; gradients."""
    ASKED.add(tuple(int(n) for n in split))
    data, tensor, pipeline = split
    micro_batches = tokens / MICRO / data  # of each pipeline
    if micro_batches < 1:
        return math.inf
    compute = 6 * parameters * tokens / (data * tensor * pipeline) / FLOPS
    # Four all_reduces a layer and micro-batch, on the link that joins all of them.
    sums = 4 * layers / pipeline * micro_batches * 2 * MICRO * width
    sums *= 2 * (tensor - 1) / tensor / (FAST if tensor <= 8 else SLOW)
    passed = (pipeline > 1) * micro_batches * 8 * MICRO * width / tensor / SLOW
    bubble = (pipeline - 1) / micro_batches
    # Nine tenths of the gradients travel behind the last backward.
    gradients = 0.1 * 2 * parameters / tensor / pipeline * 2 * (data - 1) / data / SLOW
    return (compute + sums + passed) * (1 + bubble) + gradients


def fastest(*training, machines):
    """The fewest seconds of all layouts that fit, and its tensor."""
    devices, layers = 8 * machines, training[1]
    splits = [
        [devices // tensor // pipeline, tensor, pipeline]
        for tensor in (1, 2, 4, 8, 16)
        for pipeline in range(1, layers + 1)
        if layers % pipeline == devices % (tensor * pipeline) == 0
    ]
    fits = [split for split in splits if memory(split, *training) <= 80 * GB]
    return min([(seconds(s, *training), s[1]) for s in fits], default=(math.inf, 0))


def draw(seed):
    """Three trainings whose fastest layouts have tensor 2, 4, and 8."""
    chance, found = random.Random(seed), {}
    while not {2, 4, 8} <= found.keys():
        layers, width = chance.choice((48, 60, 72, 96)), 128 * chance.randrange(40, 160)
        tokens = MICRO * chance.choice((480, 960, 1920))
        training = 12 * layers * width**2, layers, width, tokens
        machines = chance.choice((15, 30, 60, 120, 240))
        least, tensor = fastest(*training, machines=machines)
        if least < math.inf:
            found.setdefault(tensor, (training, machines, least))
    return [found[tensor] for tensor in (8, 2, 4)]


def judge(training, machines, least):
    """Return the layout and how many times the fewest seconds it takes, or raise."""
    ASKED.clear()
    split = layout(*training, machines)
    told = f"{training[0] / 1e9:.0f} billion on {machines} machines: {split}"
    if len(ASKED) > QUESTIONS:
        raise AssertionError(f"asked seconds() about {len(ASKED)} layouts a training")
    if len(split) != 3 or any(n != int(n) or n < 1 for n in split):
        raise AssertionError(f"{told} are not three whole numbers")
    data, tensor, pipeline = split = [int(n) for n in split]  # of NumPy's, perhaps
    if data * tensor * pipeline != 8 * machines or training[1] % pipeline:
        raise AssertionError(f"{told} for {8 * machines} devices")
    if memory(split, *training) > 80 * GB:
        raise AssertionError(f"{told}: too much for a device of 80 GB")
    times = seconds(split, *training) / least
    if times > CLOSE:
        raise AssertionError(f"{told}: {times:.2f} times as long as need be")
    return [*split, times]


def main(rank, world_size, device):
    seeds = [random.random()]
    dist.broadcast_object_list(seeds)  # all ranks draw the same trainings
    facts = {"solved": True, "layouts": []}
    for training in draw(seeds[0]):
        try:
            facts["layouts"].append(judge(*training))
        except NotImplementedError:
            print(f"[rank {rank}] not yet: write layout()", flush=True)
            return {"solved": False}
        data, tensor, pipeline, times = facts["layouts"][-1]
        told = f"data {data}, tensor {tensor}, pipeline {pipeline}"
        print(f"[rank {rank}] {told}: {times:.3f} of the fewest seconds", flush=True)
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

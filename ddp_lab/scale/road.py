"""A step in each layout: bytes to hold, bytes to send, seconds; the fastest that fits.

    torchrun --standalone --nproc-per-node 2 ddp_lab/scale/road.py

What that says of 7 billion parameters on as many H100 as there are ranks:

    [rank 0] ...: ... GB a GPU, ... s a step, ... of peak

Written by notebooks/21_choose_a_layout.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, inf, log2
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

GB = 1e9

GATHERING = ("sharded", "hybrid sharded")
LAUNCH = 3e-4  # seconds that a layer takes at least: its kernels have to be started
LEAK = 0.1  # of what can travel behind computing does not: the first, and the last
HOST = 4e9  # parameters that a machine's CPUs update in a second
KINDS = ("DDP", "sharded optimizer", *GATHERING, "remote calls")
ROOM = 0.9  # of a device's memory; the rest is the library's, or lost between blocks
PAYS = 0.5  # of a step must be computing, or half as many devices are tried
CLOSE = 1.05  # no formula here is that exact: of layouts so close, the simplest
H100 = {"machine": 8, "memory": 80 * GB, "flops": 450e12, "fast": 360 * GB}
H100 |= {"peak": 989e12}


@dataclass(frozen=True)
class Training:
    """A model, its batch, and the devices; bytes, and bytes or operations a second."""

    parameters: float
    layers: int
    width: int  # numbers that a token has between two layers
    sequences: int  # in a step, on all devices together
    length: int  # tokens of a sequence
    devices: int
    machine: int  # devices of a machine
    memory: float  # of a device
    flops: float  # of a device: what it reaches in a step, waiting aside
    fast: float  # from a device to another one of its machine
    slow: float  # to other machines: a device's share of its machine's cards
    host: float = 256 * GB  # main memory, for each device
    hop: float = 5e-6  # seconds until a message's first byte is at the next rank
    number: int = 2  # bytes of a weight, a gradient, an activation
    states: float = 12  # of the optimizer, a parameter; 6 if Adam's two have 8 bits
    active: float = 0  # parameters that a token meets, where that is not all of them
    work: float = 0  # operations of a token, where the model is no transformer
    kept: float = 0  # bytes that backward wants of a token and layer; of these,
    whole: float = 0  # what tensor parallel leaves whole
    sums: float = 4  # of tensor parallel in a layer: attention, MLP; there and back
    scatter: int = 1  # how many gathers a reduce_scatter is worth: 2 over gloo
    peak: float = 0  # operations a second that the device's maker promises


class Cut(NamedTuple):
    """A layout: over how many ranks it cuts what, and its switches."""

    kind: str = "DDP"  # what the ranks do that have different rows
    data: int = 1  # how many such ranks there are,
    shard: int = 1  # and how many of them share one copy of what the kind cuts
    tensor: int = 1
    pipeline: int = 1
    rows: int = 1  # sequences of a micro-batch
    recompute: float = 0  # the share of the layers that runs forward twice
    offload: bool = False  # the optimizer lies in main memory, and steps there
    laps: int = 1  # thinner stages of each rank: interleaved, if more than one


def stage(t, c):
    """What a rank has: micro-batches, tokens in each, layers, parameters."""
    micro = ceil(t.sequences / c.data / c.rows)
    layers = ceil(t.layers / c.pipeline)  # of the fullest stage
    return micro, c.rows * t.length, layers, t.parameters * layers / t.layers / c.tensor


def memory(t, c):
    """Bytes on a device: of the model, of what is gathered, of activations."""
    micro, tokens, layers, part = stage(t, c)
    weights = gradients = t.number * part
    optimizer, gathered = t.states * part / c.shard, 0
    if c.kind in GATHERING:
        # Whole: the layer that computes, the next one, and the gradient of one.
        gathered = 3 * weights / layers
        weights, gradients = weights / c.shard, gradients / c.shard
    if c.offload:
        gradients = optimizer = 0  # each gradient leaves as soon as it is there

    # Backward wants 34 bytes a number (Korthikanti et al., 2022) if attention keeps
    # no matrix; of a layer that is recomputed, only what entered it.
    kept = t.kept or 34 * t.width
    kept = tokens * ((kept - t.whole) / c.tensor + t.whole)
    entered = tokens * t.number * t.width / c.tensor
    # 1F1B: the first of p stages is p micro-batches ahead; interleaved, a few more.
    ahead = c.pipeline + (c.laps > 1) * (c.pipeline - 1) / c.laps
    flying = layers * min(ahead, micro)
    activations = flying * (c.recompute * entered + (1 - c.recompute) * kept)
    activations += kept * (c.recompute > 0)  # the layer that is being recomputed
    return weights + gradients + optimizer, gathered, activations


def messages(t, c):
    """Yield a rank's calls in a step: why, how many, how, bytes, ranks, stride."""
    micro, tokens, layers, part = stage(t, c)
    activation, weights = t.number * t.width * tokens, t.number * part
    # Half of a layer's sums are forward's, and recomputing makes these again.
    sums = t.sums * layers * micro * (1 + c.recompute / 2)
    yield "tensor sums", sums, "sum", activation, c.tensor, 1
    ends = 2 * c.laps - (c.pipeline == 2)  # to the right, and a gradient to the left
    if c.kind == "remote calls":
        ends = 2 * (c.pipeline - 1)  # rank 0 sends both to each of the others
    apart = c.tensor * c.data
    yield "passing on", ends * micro, "pass", activation / c.tensor, c.pipeline, apart
    if c.kind in GATHERING:  # for each micro-batch: weights, weights again, gradients
        times = (2 + t.scatter) * layers * micro
        yield "gathering", times, "gather", weights / layers, c.shard, c.tensor
        weights /= c.shard  # what is left to be summed, over copies of the shards
    elif c.shard > 1:  # once a step: gradients, and the new weights
        times = (1 + t.scatter) * layers
        yield "gradients", times, "gather", weights / layers, c.shard, c.tensor
    yield "gradients", 1, "sum", weights, c.data // c.shard, c.tensor * c.shard


def travel(t, how, size, ranks, stride):
    """A rank's bytes and seconds in a call; every `stride`th rank takes part."""
    inside = min(ranks, max(1, t.machine // stride))
    # A ring enters and leaves each machine once; `inside` rings share its cards.
    link = t.fast if inside == ranks else min(t.fast, inside * t.slow)
    once = (ranks - 1) / ranks * size  # each part goes to all ranks but one
    sent, hops = {
        "gather": (once, ranks - 1),  # round the ring; reduce_scatter is its mirror
        "sum": (2 * once, 2 * log2(ranks)),  # both; the first byte up a tree and down
        "pass": (size, 1) if ranks > 1 else (0, 0),
    }[how]
    return sent, sent / link + hops * t.hop


def sent(t, c):
    """What a rank sends in a step, and how long that takes: {why: (bytes, seconds)}."""
    total = {}
    for why, times, *call in messages(t, c):
        (size, time), (sizes, times_) = travel(t, *call), total.get(why, (0, 0))
        total[why] = sizes + times * size, times_ + times * time
    return total


def operations(t):
    """Of a token: 2 a parameter forward, 4 backward; and causal attention's."""
    dense = 6 * (t.active or t.parameters)
    return t.work or dense + 6 * t.layers * t.width * t.length


def seconds(t, c):
    """Return what a step's time goes into: {why: seconds}."""
    micro, tokens, layers, part = stage(t, c)
    wire = {why: time for why, (_, time) in sent(t, c).items()}

    def exposed(why, behind):
        return max(wire.get(why, 0) - behind, LEAK * wire.get(why, 0))

    layer = tokens * operations(t) / t.layers / c.tensor / t.flops
    spent = {"computing": micro * layers * max(layer, LAUNCH)}
    spent["recomputing"] = spent["computing"] * c.recompute / 3  # forward is a third
    spent["gathering"] = exposed("gathering", sum(spent.values()))
    spent["tensor sums"] = wire["tensor sums"]  # the next matrix waits for each
    spent["passing on"] = wire["passing on"]
    # A stage of p works on m micro-batches, and for p - 1 it has none.
    spent["bubble"] = sum(spent.values()) * (c.pipeline - 1) / micro / c.laps
    backward = spent["computing"] * 2 / 3 / micro  # of the last micro-batch
    spent["gradients"] = exposed("gradients", backward)
    here = min(t.machine, t.devices)
    spent["main memory"] = c.offload * part / c.shard * here / HOST
    return spent


def cuts(t, devices):
    """Yield every layout over so many devices, without its switches."""
    for tensor in divisors(devices, min(16, t.machine)):
        for pipeline in divisors(devices // tensor, t.layers):
            data, near = devices // tensor // pipeline, t.machine // tensor
            if data > t.sequences or t.width % tensor:
                continue
            shards = {"DDP": 1}
            if data > 1:
                shards |= {"sharded optimizer": data, "sharded": data}
            if data > near > 1 and data % near == 0:
                shards["hybrid sharded"] = near  # in a machine; DDP between them
            most = ceil(t.sequences / data)
            for kind, shard in shards.items():
                for rows in (2**n for n in range(most.bit_length())):
                    yield Cut(kind, data, shard, tensor, pipeline, rows)
    if 1 < devices <= t.layers:
        yield Cut("remote calls", pipeline=devices, rows=t.sequences)


def interleaved(t, c):
    """Yield a layout with each number of laps; it deals out p micro-batches a time."""
    micro = ceil(t.sequences / c.data / c.rows)
    fits = c.pipeline > 1 and micro % c.pipeline == 0 and c.kind != "remote calls"
    for laps in (1, 2, 3, 4, 5, 8):
        if laps == 1 or fits and t.layers % (c.pipeline * laps) == 0:
            yield c._replace(laps=laps)


def divisors(number, most):
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def fill(t, c):
    """How full the fuller of the two memories is: above 1 the layout does not fit."""
    out = c.offload * (t.number + t.states) * stage(t, c)[-1] / c.shard
    return max(sum(memory(t, c)) / (ROOM * t.memory), out / t.host)


def best(t, devices, offload=False):
    """Return each family's fastest layout that fits, as (seconds, fill, cut)."""
    found = {}
    for cut in (each for each in cuts(t, devices) for each in interleaved(t, each)):
        for share in (0, 0.25, 0.5, 0.75, 1):  # recompute no more than has to be
            c = cut._replace(recompute=share, offload=offload)
            full = fill(t, c)
            if full <= 1:
                break
        row = sum(seconds(t, c).values()) if full <= 1 else inf, full, c
        family = c.kind, c.data > 1, c.tensor > 1, c.pipeline > 1
        found[family] = min(found.get(family, row), row, key=lambda row: row[:2])
    rows = sorted(found.values(), key=lambda row: row[:2])
    # Main memory is far away: only where nothing fits without it.
    return rows if offload or rows[0][0] < inf else best(t, devices, offload=True)


def road(t, devices=None):
    """Return the layouts, the chosen one first, on as many devices as pay."""
    devices = devices or t.devices
    rows = best(t, devices)
    if rows[0][0] == inf:
        return rows
    close = [row for row in rows if row[0] <= CLOSE * rows[0][0]]
    chosen = min(close, key=simplicity)
    rows = [chosen] + [row for row in rows if row is not chosen]
    if devices == 1 or share(t, rows) >= PAYS:
        return rows
    fewer = road(t, devices // 2)
    return fewer if share(t, fewer) >= PAYS or fewer[0][0] < rows[0][0] else rows


def simplicity(row):
    c = row[-1]
    return (c.tensor > 1) + (c.pipeline > 1), KINDS.index(c.kind), c.recompute


def share(t, rows):
    """Which share of a step is computing."""
    time, _, c = rows[0]
    alone = operations(t) * t.sequences * t.length / t.flops
    return alone / (c.data * c.tensor * c.pipeline) / time


def mfu(t, c):
    """Which share of the promised speed the model's own operations use."""
    work = operations(t) * t.sequences * t.length / devices(c)
    return work / sum(seconds(t, c).values()) / t.peak


def told(t):
    """Return lines: the choice, and by how much and why each of the others lost."""
    rows = road(t)
    time, full, won = rows[0]
    lines, least = [], seconds(t, won)
    if time < inf:
        held = f"{sum(memory(t, won)) / GB:.0f} GB a GPU"
        lines = [f"{name(won)}: {held}, {time:.3g} s a step"]
        lines[0] += f", {mfu(t, won):.0%} of peak" if t.peak else ""
        if devices(won) < t.devices:
            lines[0] += f"; on all {t.devices} devices {best(t, t.devices)[0][0]:.3g} s"
    for slower, full, c in rows[len(lines) :]:
        spent, parts = seconds(t, c), memory(t, c)
        why = max(spent, key=lambda why: spent[why] - least[why])
        lost = f"{slower / time:.2f} times as long: {why}"
        if slower == inf:
            most = max(zip(parts, ("model", "gathered", "activations"), strict=True))[1]
            lost = f"does not fit: {full:.1f} times what there is, most of it {most}"
        lines.append(f"{name(c)}: {lost}")
    return lines + ["experts on different devices: not priced"] * (t.active > 0)


def name(c):
    words = {"tensor": c.tensor, "pipeline": c.pipeline, "laps": c.laps, c.kind: c.data}
    if c.kind == "remote calls":
        words = {c.kind: c.pipeline}
    cut = ", ".join(f"{word} {n}" for word, n in words.items() if n > 1)
    switches = f", {c.recompute:.0%} recomputed" * (c.recompute > 0)
    return (cut or "one process") + switches + ", offloaded" * c.offload


def devices(c):
    return c.data * c.tensor * c.pipeline


def main(rank, world_size, device):
    dist.barrier()  # who leaves before all are connected makes the others fail
    t = Training(6.7e9, 32, 4096, 1024, 4096, world_size, **H100, slow=45 * GB)
    for c in cuts(t, world_size):  # a layout may do things twice, but it loses none
        held, took = memory(t, c)[0] * world_size, sum(seconds(t, c).values())
        if held < 15.99 * t.parameters or share(t, [(took, 0, c)]) > 1:
            raise AssertionError(f"{c} loses bytes or work")
    print(f"[rank {rank}] {told(t)[0]}", flush=True)


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

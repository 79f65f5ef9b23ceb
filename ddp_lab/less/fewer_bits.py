"""A step of four micro-batches over a slow wire: less often, and in fewer bits.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/fewer_bits.py

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
import socket
import statistics
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

CARDS = Path("/proc/net/dev")  # where Linux counts what each network card has sent
REPEATS = 3  # that count, after one that does not

WIDTH, MICRO = 512, 4  # 512 x 512 weights make 1 MB of gradient; micro-batches a step
WAYS = ("every", "once", "bf16", "both")


def bytes_sent():
    """What has left this node so far; 0 where it is not counted."""
    text = CARDS.read_text() if CARDS.exists() else ""
    rows = [line.split(":") for line in text.splitlines() if ":" in line]
    return sum(int(counts.split()[8]) for card, counts in rows if card.strip() != "lo")


def measure(call, *args):
    """A call's milliseconds, what left this node in it, and what it returned."""
    times, sent = [], []
    for _ in range(REPEATS + 1):
        before = bytes_sent()
        dist.barrier()  # all begin together, and none before all have looked
        start = time.perf_counter()
        result = call(*args)
        times.append(1000 * (time.perf_counter() - start))
        dist.barrier()  # the others' messages count as well
        sent.append(bytes_sent() - before)
    return statistics.median(times[1:]), statistics.median(sent[1:]), result


def look_around(world_size):
    """By rank, its node; and whether each has counters not shared with another."""
    places = [None] * world_size
    own = int(os.environ["GROUP_RANK"]), socket.gethostname()
    dist.all_gather_object(places, own)  # every rank now holds node and host of all
    nodes, hosts = zip(*places, strict=True)
    return nodes, 1 < len(set(nodes)) == len(set(hosts)) and CARDS.exists()


def tell(rank, way, milliseconds, sent):
    """Print what a way took and sent out of the node; return both as facts."""
    out = "not counted" if sent is None else f"{sent:.2f} times the tensor"
    print(f"[rank {rank}] {way}: {milliseconds:.0f} ms, out of node: {out}", flush=True)
    return {"milliseconds": milliseconds, "sent": sent}


def make_data(world_size):
    """By rank and micro-batch 8 samples and their weights; and the exact gradient."""
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(2, world_size, MICRO, 8, WIDTH, generator=generator)
    x, weights = data.flatten(1, 3).double()  # (samples, 512) each
    return data, weights.T @ x / len(x)


def in_16_bits(_, bucket):
    """DDP's all_reduce of one bucket: rounded to bfloat16, averaged, and back."""
    return bf16_compress_hook(None, bucket)  # every rank now holds the mean of all


def make_step(way, model, micro_batches):
    """Return the mean gradient over all samples of all ranks."""
    model.zero_grad()
    for turn, (x, weights) in enumerate(micro_batches):
        silent = way in ("once", "both") and turn < MICRO - 1
        with model.no_sync() if silent else nullcontext():
            loss = (model(x) * weights).sum(1).mean() / MICRO
            loss.backward()  # unless silent, .grad is now the mean over all ranks
    return model.module.weight.grad.double().cpu()


def main(rank, world_size, device):
    (data, expected), facts = make_data(world_size), {}
    _, counted = look_around(world_size)
    micro_batches = list(zip(*data[:, rank].to(device), strict=True))
    for way in WAYS:
        model = DDP(torch.nn.Linear(WIDTH, WIDTH, bias=False).to(device))
        if short := way in ("bf16", "both"):
            model.register_comm_hook(None, in_16_bits)
        milliseconds, sent, gradient = measure(make_step, way, model, micro_batches)
        off = ((gradient - expected).norm() / expected.norm()).item()
        if not off < (1e-2 if short else 1e-5):  # bfloat16 keeps 8 bits of a number
            raise AssertionError(f"{way}: the gradient is off by {off:.1e}")
        sent = sent / (4 * WIDTH**2) if counted else None
        facts[way] = tell(rank, way, milliseconds, sent) | {"off": off}
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

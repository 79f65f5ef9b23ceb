"""Exercise: place eight unequal layers so that the fullest rank holds least.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/exercise.py

Fill in place(), and the ranks count the bytes that they really hold. Until then:

    [rank 0] not yet

Written by notebooks/14_model_parallel.ipynb.
"""

import gc
import itertools
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

ROWS, LAYERS = 256, 8
# Layer i takes WIDTHS[i] features and makes WIDTHS[i + 1] of them.
WIDTHS = [256, 16, 16, 128, 32, 128, 128, 256, 32]


def place(layer_bytes, world_size):
    """Say how many of the 8 layers each rank gets: rank 0 the first ones, and so on.

    layer_bytes: 8 numbers, the bytes that each layer needs in a training step.
    Return world_size numbers, each at least 1, that add up to 8, so that the fullest
    rank holds as little as possible, whatever the layers and the number of ranks.
    """
    return None  # your code here


def least(layer_bytes, world_size):
    """The truth, by brute force: the fullest rank of the best of all cuts."""
    best = sum(layer_bytes)
    for cuts in itertools.combinations(range(1, LAYERS), world_size - 1):
        edges = itertools.pairwise([0, *cuts, LAYERS])
        best = min(best, max(sum(layer_bytes[first:end]) for first, end in edges))
    return best


def ask_about(layer_bytes, world_size):
    """Return what place() answers; raise if a rank holds more than it has to."""
    counts = list(place(list(layer_bytes), world_size))
    if len(counts) != world_size or min(counts) < 1 or sum(counts) != LAYERS:
        raise ValueError(f"{counts}: no way to place {LAYERS} layers on {world_size}")
    edges = itertools.pairwise(itertools.accumulate(counts, initial=0))
    peak = max(sum(layer_bytes[first:end]) for first, end in edges)
    expected = least(layer_bytes, world_size)
    if peak != expected:
        case = f"layers of {layer_bytes} bytes on {world_size} ranks, as {counts}"
        raise AssertionError(f"{case}: the fullest holds {peak}, expected {expected}")
    return counts


def train_step(stage, rank, world_size, device, link):
    """Run one training step; return the bytes of weights, gradients and kept inputs."""
    weights, kept = list(stage.parameters()), {}

    def keep(tensor):  # called for each tensor that autograd puts aside for backward
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.ones(ROWS, stage[1].in_features, device=link)
    if rank > 0:
        dist.recv(x, src=rank - 1)  # holds the left stage's output
    x = x.to(device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = stage(x)
    grad = torch.ones(out.shape, device=link)
    if rank < world_size - 1:
        dist.send(out.detach().to(link), dst=rank + 1)
        dist.recv(grad, src=rank + 1)  # holds d loss / d out
    out.backward(grad.to(device))
    if rank > 0:
        dist.send(x.grad.to(link), dst=rank - 1)
    kept |= {w.data_ptr(): w.nbytes for w in weights}  # autograd keeps some of them too
    return sum(kept.values()) + sum(w.grad.nbytes for w in weights)


def main(rank, world_size, device):
    if world_size > LAYERS:
        raise ValueError(f"{LAYERS} layers are too few for {world_size} ranks")
    sizes = itertools.pairwise(WIDTHS)
    # Float32: weights, biases and their gradients, and the input kept for backward.
    layer_bytes = [4 * (2 * (a + 1) * b + ROWS * a) for a, b in sizes]
    if place(list(layer_bytes), world_size) is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False, "layer_bytes": layer_bytes}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return
    for _ in range(25):  # other layers than these, drawn anew in each run
        drawn = [random.randrange(1, 1000) for _ in range(LAYERS)]
        for ranks in (2, 3, 4, 5):
            ask_about(drawn, ranks)
    counts = ask_about(layer_bytes, world_size)
    first, end = sum(counts[:rank]), sum(counts[: rank + 1])
    # ReLU first: what it keeps for backward is the very tensor that Linear keeps.
    pairs = [(nn.ReLU(), nn.Linear(*WIDTHS[i : i + 2])) for i in range(first, end)]
    stage = nn.Sequential(*itertools.chain(*pairs)).to(device)
    # gloo's send and recv work only on host memory, even where there is a GPU.
    link = torch.device("cpu") if dist.get_backend() == "gloo" else device
    held = train_step(stage, rank, world_size, device, link)
    print(f"[rank {rank}] layers {first} to {end - 1}: {held} bytes", flush=True)
    peak = torch.tensor(held, device=device)
    dist.all_reduce(peak, dist.ReduceOp.MAX)  # every rank holds the fullest's bytes
    peak, expected = peak.item(), least(layer_bytes, world_size)
    if peak != expected:
        raise AssertionError(f"the fullest rank holds {peak}, expected {expected}")
    return {"solved": True, "held": held, "peak": peak}


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

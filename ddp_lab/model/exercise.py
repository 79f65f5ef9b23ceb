"""Exercise: what does a layer need? The ranks count the bytes that they really hold.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/exercise.py

Eight unequal layers are placed by layer_bytes(), so that the fullest rank holds least:

    [rank 0] not yet

Written by notebooks/14_model_parallel.ipynb.
"""

import gc
import itertools
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

SAMPLES, LAYERS = 256, 8
# Layer i takes WIDTHS[i] features and makes WIDTHS[i + 1] of them.
WIDTHS = [256, 16, 16, 128, 32, 128, 128, 256, 32]


def layer_bytes(samples, inputs, outputs):
    """Return the bytes of a layer's weights, gradients, Adam's averages, activations.

    The layer is a ReLU and then nn.Linear(inputs, outputs), all in float32. It keeps
    one activation for backward: what the ReLU passes on to the Linear.
    """
    return None  # your code here


def place(needs, world_size):
    """Say where each rank's layers begin and end; the fullest rank holds least."""

    def fullest(edges):
        return max(sum(needs[first:end]) for first, end in itertools.pairwise(edges))

    cuts = itertools.combinations(range(1, LAYERS), world_size - 1)
    best = min(([0, *each, LAYERS] for each in cuts), key=fullest)
    return list(itertools.pairwise(best))


def train_step(stage, rank, world_size, device, link):
    """Run one training step; return the bytes that it has needed here."""
    weights, kept = list(stage.parameters()), {}

    def keep(tensor):  # called for each tensor that autograd puts aside for backward
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.ones(SAMPLES, stage[1].in_features, device=link)
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
    return sum(kept.values()) + adam_step(weights)


def adam_step(weights):
    """Make the step; return the bytes of gradients and of Adam's averages."""
    optimizer = torch.optim.Adam(weights)
    optimizer.step()
    state = [t for each in optimizer.state.values() for t in each.values() if t.ndim]
    return sum(tensor.nbytes for tensor in [w.grad for w in weights] + state)


def main(rank, world_size, device):
    if world_size > LAYERS:
        raise ValueError(f"{LAYERS} layers are too few for {world_size} ranks")
    needs = [layer_bytes(SAMPLES, *sizes) for sizes in itertools.pairwise(WIDTHS)]
    if None in needs:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    first, end = place(needs, world_size)[rank]
    # ReLU first: what it keeps for backward is the very tensor that Linear keeps.
    pairs = [(nn.ReLU(), nn.Linear(*WIDTHS[i : i + 2])) for i in range(first, end)]
    stage = nn.Sequential(*itertools.chain(*pairs)).to(device)
    # gloo's send and recv work only on host memory, even where there is a GPU.
    link = torch.device("cpu") if dist.get_backend() == "gloo" else device
    held = train_step(stage, rank, world_size, device, link)
    predicted = sum(needs[first:end])
    print(f"[rank {rank}] layers {first} to {end - 1}: {held} bytes", flush=True)
    if held != predicted:
        raise AssertionError(f"rank {rank} holds {held} bytes, not {predicted}")
    return {"solved": True, "held": held}


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

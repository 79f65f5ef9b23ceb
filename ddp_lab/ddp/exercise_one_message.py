"""Exercise: average all gradients by one all_reduce instead of one for each tensor.

    torchrun --standalone --nproc-per-node 3 ddp_lab/ddp/exercise_one_message.py

The model has four tensors of different shapes.

Written by notebooks/03_ddp_basics.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode


def average_gradients(model):
    """Replace every gradient by its mean over the ranks, with one communication call.

    ddp/by_hand.py calls dist.all_reduce once for each parameter. Each call takes
    time, however small its tensor, so DDP collects gradients in a buffer, its bucket.

    Args:
        model: its parameters have gradients of different shapes, on this rank's device.

    Returns:
        True, when every `parameter.grad` holds the mean of all ranks. Target: 1
        communication call on each rank, whatever it is, for the four gradients.
    """
    return None  # your code here


class EveryCall(TorchDispatchMode):
    """Counts communication calls of every kind: each passes torch's dispatcher."""

    count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        sends = not any(word in str(op) for word in ("wait", "wrap"))
        self.count += "c10d" in op.namespace and sends
        return op(*args, **(kwargs or {}))


def make_model(device):
    """A model with a gradient in every parameter, which no other rank can know."""
    torch.seed()  # a number that only this process has
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def means(model):
    """The truth: every gradient's mean over the ranks, one call for each."""
    gradients = [p.grad / dist.get_world_size() for p in model.parameters()]
    for gradient in gradients:
        dist.all_reduce(gradient)  # every rank now holds the mean
    return gradients


def main(rank, world_size, device):
    model = make_model(device)
    expected = means(model)

    with EveryCall() as calls:
        done = average_gradients(model)
    if done is None and not calls.count:  # on all ranks alike: none is left waiting
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return {"solved": False}

    names = dict(model.named_parameters())
    for (name, parameter), truth in zip(names.items(), expected, strict=True):
        gradient = parameter.grad
        if not torch.allclose(gradient, truth, atol=1e-6):
            worst = (gradient - truth).abs().argmax()
            got, right = gradient.flatten()[worst], truth.flatten()[worst]
            told = f"a number in the gradient of {name} is {got:.4f}"
            raise AssertionError(f"{told}, expected {right:.4f}")
    print(f"[rank {rank}] {len(expected)} gradients, {calls.count} calls", flush=True)
    if calls.count != 1:
        raise AssertionError(f"{calls.count} calls, expected 1")
    return {"solved": True, "calls": calls.count}


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

"""Exercise: accumulate micro-batches of different sizes, and communicate once.

    torchrun --standalone --nproc-per-node 3 ddp_lab/practice/exercise.py

Sample i has the gradient i. Each rank has its samples in pieces of 3, 2 and 1:

    [rank 0] not yet

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = (3, 2, 1), (4, 1), (1, 1, 5)  # samples in each micro-batch, in three runs


def accumulate(model, micro_batches):
    """Leave in `.grad` the mean over all samples of all ranks, by one all_reduce.

    Args:
        model: a DDP model; the loss of a sample is what the model makes of it.
        micro_batches: of shape (samples, 1) each, *not* all of the same size. In all,
            each rank has equally many samples.

    Returns:
        True, when the gradient is there. Target with three ranks and the sizes 3, 2, 1:
        gradient 9.5, 1 all_reduce, and at most 3 samples between forward and backward.
    """
    return None  # your code here


class EveryCall(TorchDispatchMode):
    """Counts communication calls, whether DDP makes them or the reader's lines."""

    count, of_ddp = 0, False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        sends = not any(word in str(op) for word in ("wait", "wrap", "broadcast"))
        self.count += "c10d" in op.namespace and sends and not self.of_ddp
        return op(*args, **(kwargs or {}))


def counted(calls, bucket):
    """DDP's own all_reduce of one bucket of gradients; note that it happened."""
    calls.of_ddp, calls.count = True, calls.count + 1  # on a GPU, in another thread
    work = allreduce_hook(None, bucket)  # every rank then holds the mean of all ranks
    calls.of_ddp = False
    return work


def watch(model):
    """Return a list that notes each forward's samples, and 0 for each backward."""
    turns = []
    model.register_forward_pre_hook(lambda _, inputs: turns.append(len(inputs[0])))
    model.weight.register_post_accumulate_grad_hook(lambda _: turns.append(0))
    return turns


def measure(sizes, rank, world_size, device):
    """The gradient that accumulate() leaves, the truth, the calls, and the samples."""
    count, calls, held = sum(sizes), EveryCall(), [0]
    mine = torch.arange(1.0, count + 1).view(-1, 1) + rank * count
    model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
    model.register_comm_hook(calls, counted)
    turns = watch(model.module)
    with calls:
        done = accumulate(model, mine.to(device).split(sizes))
    if done is None and not turns:
        return None
    if sum(turns) != count:
        raise AssertionError(f"the model saw {sum(turns)} samples, expected {count}")
    for samples in turns:  # what forward keeps, until backward frees it
        held.append(held[-1] + samples if samples else 0)
    got = model.module.weight.grad
    got = 0.0 if got is None else got.item()
    return got, (world_size * count + 1) / 2, calls.count, max(held)


def main(rank, world_size, device):
    facts = {"solved": True, "gradients": [], "all_reduces": []}
    for sizes in SIZES:
        found = measure(sizes, rank, world_size, device)
        if found is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        got, expected, sent, held = found
        told = f"gradient {got:.2f}, all_reduces: {sent}, samples held: {held}"
        print(f"[rank {rank}] pieces of {sizes}: {told}", flush=True)
        if abs(got - expected) > 1e-4 or sent != 1 or held > max(sizes):
            raise AssertionError(f"{told}; expected {expected}, 1, {max(sizes)}")
        facts["gradients"].append(got)
        facts["all_reduces"].append(sent)
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

"""Exercise: accumulate micro-batches of different sizes, and communicate once.

Sample i has the gradient i. Each rank has its samples in pieces of 3, 2 and 1:

    [rank 0] not yet
"""

import math
from contextlib import nullcontext  # noqa: F401  (may be used)

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = (3, 2, 1), (4, 1), (1, 1, 5)  # samples in each micro-batch, in three runs


def accumulate(model, micro_batches):
    return None  # the cell's function stands here


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
        right = math.isclose(got, expected, abs_tol=1e-4)
        if not right or sent != 1 or held > max(sizes):
            raise AssertionError(f"{told}; expected {expected}, 1, {max(sizes)}")
        facts["gradients"].append(got)
        facts["all_reduces"].append(sent)
    return facts

"""Exercise: add up micro-batches with one all_gather and one reduce_scatter a group.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/exercise_accumulate.py

Once `accumulate` is written, its gradients are compared and its calls counted. Until
then:

    [rank 0] not yet

Written by notebooks/16_fully_shard.ipynb.
"""

import gc
import json
import os
import random
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, batch, loss_of

# The logits are a view; a warning says not to change them in place, and we do not.
warnings.filterwarnings("ignore", "FSDP2-wrapped module")


def accumulate(model, micro_batches):
    """Leave in model the gradient of the mean loss over all rows; return this loss.

    model is a GPT, sharded by block. micro_batches is a list of (x, y), of which
    loss_of(model(x), y) is the mean loss; their rows differ in number, and are as many
    on every rank. One forward and backward for each. In all of them together, each of
    the 5 groups is gathered once and reduced once: [5, 5]. At the end it is freed.
    Return the mean loss of this rank's rows, a number.
    """
    return None  # your code here


class EveryCall(TorchDispatchMode):
    """Keeps the name of each communication call, of every kind."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        name = call.name().split("::")[-1].strip("_")
        if "c10d" in call.namespace and not name.startswith(("wait", "wrap")):
            self.made.append(name)
        return call(*args, **(kwargs or {}))

    def count(self):
        """Count the all_gathers and the reduce_scatters, and refuse any other."""
        counts = [
            sum(name in made for made in self.made) for name in ("allg", "reduce_sc")
        ]
        if sum(counts) != len(self.made):
            raise AssertionError(f"only the model may communicate, not {self.made}")
        return counts


def build(device):
    torch.manual_seed(0)
    return GPT().to(device)


def truth(micro_batches, world_size, device):
    """The uncut model sees the rows of all ranks and all micro-batches at once."""
    model = build(device)
    x, y = (torch.cat(rows) for rows in zip(*micro_batches, strict=True))
    loss_of(model(x.to(device)), y.to(device)).backward()
    return model


def compare(model, expected):
    weights = zip(model.named_parameters(), expected.parameters(), strict=True)
    for (name, p), e in weights:
        if not isinstance(p, DTensor):
            raise AssertionError(f"{name} is still gathered")
        if p.grad is None:
            raise AssertionError(f"{name} has no gradient")
        whole = p.grad.full_tensor()
        torch.testing.assert_close(whole, e.grad, msg=f"{name}: gradient differs")


def check(model, sizes, rank, device):
    """Call; compare loss and gradients; return the two counts."""
    world_size, seen = dist.get_world_size(), []
    everything = [batch(i, size * world_size) for i, size in enumerate(sizes)]
    mine = [
        tuple(t.chunk(world_size)[rank].to(device) for t in pair) for pair in everything
    ]
    model.zero_grad()
    hook = model.tokens.register_forward_hook(lambda _, i, o: seen.append(len(i[0])))
    with EveryCall() as calls:
        loss = accumulate(model, mine)
    hook.remove()
    if loss is None:
        return None

    if seen != sizes:
        raise AssertionError(f"forward saw {seen} rows, expected {sizes}")
    compare(model, truth(everything, world_size, device))
    with torch.no_grad():
        x, y = (torch.cat(rows) for rows in zip(*mine, strict=True))
        own = loss_of(build(device)(x), y).item()
    torch.testing.assert_close(float(loss), own, rtol=1e-4, atol=0, msg="loss differs")
    return calls.count()


def main(rank, world_size, device):
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    device, mesh = torch.device(kind), dist.init_device_mesh(kind, (world_size,))
    model = build(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # Rows of each micro-batch on each rank; all ranks must hold the same numbers.
    cases = [[random.sample([1, 2, 3, 5], n) for n in (3, 4, 2)]]
    dist.broadcast_object_list(cases, src=0)
    counts = [check(model, sizes, rank, device) for sizes in cases[0]]
    if None in counts:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return None
    groups = 1 + len(model.blocks)
    for sizes, made in zip(cases[0], counts, strict=True):
        if made != [groups, groups]:
            told = f"all_gathers, reduce_scatters {made}, expected {[groups, groups]}"
            raise AssertionError(f"{len(sizes)} micro-batches: {told}")
    print(f"[rank {rank}] gradients as uncut, calls {counts}", flush=True)
    return {"solved": True, "calls": counts}


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

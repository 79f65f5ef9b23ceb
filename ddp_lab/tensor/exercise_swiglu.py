"""Exercise: SwiGLU with a fused weight, in a cut sequence; "not yet" until written.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/exercise_swiglu.py

Written by notebooks/17_tensor_parallel.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WIDTH, SIZES = 8, [(12, 24), (24, 48)]  # positions and hidden features of each case


def own_rows(fused):
    """Return this rank's rows of `fused`, 1 / n of them.

    fused: (2 * hidden, width), the rows of the gate, then those of the up projection.
    Of `down` (width, hidden), rank r holds the r-th of n equal pieces of the inputs.
    """
    return None  # your code here


def swiglu(mine, fused, down):
    """Return down(silu(gate x) * (up x)) for this rank's positions of the text.

    mine: (positions / n, width), this rank's; fused and down: its shares of the
    weights. Output and gradients must equal the uncut block's, with one all_gather and
    one reduce_scatter forward, and one of each backward: [1, 1, 1, 1]. GatherPositions
    and SumPositions are already defined; they cut the first dimension.
    """
    return None  # your code here


class GatherPositions(torch.autograd.Function):
    """All positions from each rank's own; backward, the sum for own positions."""

    forward = staticmethod(lambda ctx, mine: gather(mine))
    backward = staticmethod(lambda ctx, grad: sum_of_own(grad))


class SumPositions(torch.autograd.Function):
    """The sum of the ranks' parts, for own positions; backward, all positions."""

    forward = staticmethod(lambda ctx, part: sum_of_own(part))
    backward = staticmethod(lambda ctx, grad: gather(grad))


def gather(mine):
    positions = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(positions, mine.contiguous())  # every rank now holds all positions
    return torch.cat(positions)


def sum_of_own(parts):
    positions = [part.contiguous() for part in parts.chunk(dist.get_world_size())]
    mine = torch.empty_like(positions[0])
    dist.reduce_scatter(mine, positions)  # each rank now holds its positions' sum
    return mine


def uncut(x, fused, down):
    gate, up = F.linear(x, fused).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)


class EveryCall(TorchDispatchMode):
    """Keeps each communication call, of every kind, and how many numbers it handles."""

    def __init__(self):
        super().__init__()
        self.made = []  # [kind, numbers] of each call

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op.name().split("::")[-1].strip("_")
        result = op(*args, **(kwargs or {}))
        if "c10d" in op.namespace and not name.startswith(("wait", "wrap")):
            kind = "reduce_scatter" if "reduce_scatter" in name else name
            kind = "all_gather" if "gather" in name else kind
            # c10d is handed what comes out; functional collectives return it.
            both = args if op.namespace == "c10d" else (args, result)
            tensors = [t for t in tree_leaves(both) if torch.is_tensor(t)]
            self.made.append([kind, sum(t.numel() for t in tensors)])
        return result


def counted(way, positions, function, *args):
    """Call; it may take a gather and a reduce_scatter of all positions, and no more."""
    with EveryCall() as calls:
        result = function(*args)
    numbers = (positions + positions // dist.get_world_size()) * WIDTH  # in and out
    expected = [["all_gather", numbers], ["reduce_scatter", numbers]]
    if (result is not None or way == "backward") and sorted(calls.made) != expected:
        made = f"{sorted(calls.made)}, not {expected}"
        raise AssertionError(f"{way}: calls and their numbers {made}")
    return result


def rows_of(hidden):
    """Which rows of the fused weight this rank takes; the ranks must share them out."""
    rows = own_rows(torch.arange(2 * hidden).unsqueeze(1))
    everyone = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, rows.contiguous())
    if torch.cat(everyone).flatten().sort().values.tolist() != list(range(2 * hidden)):
        raise AssertionError("the ranks do not share out the rows, each row once")
    return rows.flatten()


def check(positions, hidden, rank, world_size, device):
    """Compare with the uncut block; return whether there is anything to compare."""
    tensors = [(positions, WIDTH), (2 * hidden, WIDTH), (WIDTH, hidden)]
    tensors = [torch.randn(size, dtype=torch.float64).to(device) for size in tensors]
    whole = [tensor.clone().requires_grad_() for tensor in tensors]
    x, fused, down = tensors
    if (mine := own_rows(fused)) is None:
        return False
    rows = rows_of(hidden)
    shares = x.chunk(world_size)[rank], mine, down.chunk(world_size, 1)[rank]
    mine = [share.clone().requires_grad_() for share in shares]
    if (out := counted("forward", positions, swiglu, *mine)) is None:
        return False
    expected = uncut(*whole)
    grad = torch.linspace(-1, 1, expected.numel()).view_as(expected).to(expected)
    counted("backward", positions, out.backward, grad.chunk(world_size)[rank].clone())
    expected.backward(grad)
    found = out.detach(), *(share.grad for share in mine)
    x, fused, down = (tensor.grad for tensor in whole)
    right = expected.detach().chunk(world_size)[rank], x.chunk(world_size)[rank]
    right = *right, fused[rows], down.chunk(world_size, 1)[rank]
    for what, f, t in zip(("output", "x", "fused", "down"), found, right, strict=True):
        message = f"output or gradient differs: {what}"
        torch.testing.assert_close(f, t, rtol=0, atol=1e-10, msg=message)
    return True


def main(rank, world_size, device):
    if 12 % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 positions: try 2, 3 or 4")
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    dist.broadcast_object_list(seed := [torch.seed()], src=0)
    torch.manual_seed(seed[0])  # the same numbers on every rank
    for positions, hidden in SIZES:
        if not check(positions, hidden, rank, world_size, device):
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return
    print(f"[rank {rank}] as uncut, one gather and one sum each way", flush=True)
    return {"solved": True, "calls": [1, 1, 1, 1]}


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

"""Exercise: share a whole network in one message, whatever the types of its tensors.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/exercise.py

The network has BatchNorm, so it holds float32 and int64, and one layer in float64:

    [rank 0] not yet

Written by notebooks/11_inside_ddp.ipynb.
"""

import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode


def share(tensors):
    """Give every rank rank 0's values of all tensors, in place, by one broadcast.

    tensors: of several types and shapes; some are not contiguous in memory. On all
    ranks they have the same types and shapes, in the same order, and other values. No
    bit may change on the way: there is an int64 that no float holds, and a NaN.

    Returns True. Target: 1 call, of exactly as many bytes as the tensors have.
    """
    return None  # your code here


class Counter(TorchDispatchMode):
    """Counts the calls of the process group, and the bytes that this rank gives."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and not name.startswith(("wait", "_wrap")):
            tensors = args[0] if isinstance(args[0], list | tuple) else [args[0]]
            self.calls.append(sum(tensor.nbytes for tensor in tensors))
        return function(*args, **(kwargs or {}))


def network(seed, device):
    """Numbers for one seed, some of which no float32 can hold."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3).double())
    net[1].num_batches_tracked.fill_(2**60 + seed)
    net[0].weight.data[0, 0] = float("nan")
    net.register_buffer("mask", torch.rand(3, 11) > 0.5)
    net.register_buffer("turned", torch.randn(4, 6).t())  # not in one row of memory
    return net.to(device)


def bits(tensors):
    """The tensors as bytes: equal only if each bit is."""
    rows = [t.detach().contiguous().flatten().view(torch.uint8) for t in tensors]
    return torch.cat(rows)


def main(rank, world_size, device):
    seed = [secrets.randbelow(2**31)]
    dist.broadcast_object_list(seed)  # so every rank can make rank 0's numbers
    expected, net = network(seed[0], device), network(seed[0] + rank, device)
    torch.manual_seed(0)  # which tells nothing of rank 0's numbers
    tensors = [t.detach() for t in (*net.parameters(), *net.buffers())]
    truth = bits([*expected.parameters(), *expected.buffers()])
    with Counter() as counter:
        done = share(tensors)
    if done is None:  # on all ranks alike, so no rank is left waiting
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return {"solved": False}
    held = [*net.parameters(), *net.buffers()]
    if not torch.equal(bits(held), truth):
        raise AssertionError("some tensor is not rank 0's, bit by bit")
    calls, size = len(counter.calls), sum(counter.calls)
    print(f"[rank {rank}] {calls} calls, {size} bytes", flush=True)
    if [calls, size] != [1, truth.nbytes]:
        raise AssertionError(f"expected 1 call of {truth.nbytes} bytes")
    return {"solved": True, "calls": calls, "bytes": size}


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

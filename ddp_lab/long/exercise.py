"""Exercise: the backward of ring attention, with few tensors sent, and few held.

    torchrun --standalone --nproc-per-node 2 ddp_lab/long/exercise.py

Fill in backward(), and its gradients are compared with whole attention's. Until then:

    [rank 0] not yet

Written by notebooks/20_long_sequences_and_experts.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

BATCH, HEADS, TIME, SIZE = 2, 3, 48, 8
NAMES = ("q", "k", "v")
PLAYED, MOST = 12, 20  # ranks of the ring that is played, and what one may hold there
places = []  # by rank, the positions that it has


def backward(q, k, v, out, lse, grad):
    """Return the gradients of this rank's q, k and v; grad is that of its out.

    All are (batch, heads, time / n, size), but lse has size 1. sees(owner) is the mask
    for the keys of a rank: True where our query sees its key. pass_on(a, b, ...) sends
    tensors to the right and returns a list of as many, which come from the left.
    """
    return None  # your code here


def sees(owner):
    """A mask (time / n, time / n): which of our queries see which keys of `owner`."""
    return places[dist.get_rank()][:, None] >= places[owner]


def pass_on(*tensors):
    """Send tensors to the right; return as many, which come from the left."""
    rank, n = dist.get_rank(), dist.get_world_size()
    send_bufs = [tensor.contiguous() for tensor in tensors]
    recv_bufs = [torch.zeros_like(tensor) for tensor in send_bufs]
    if n > dist.group.WORLD.size():  # this ring is played: only shapes come
        return recv_bufs
    ops = [dist.P2POp(dist.isend, send, (rank + 1) % n) for send in send_bufs]
    ops += [dist.P2POp(dist.irecv, recv, (rank - 1) % n) for recv in recv_bufs]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return recv_bufs


class Watch(TorchDispatchMode):
    """Counts what is sent and what is held; no call to all ranks passes."""

    def __init__(self, *given, may=("send", "recv")):
        super().__init__()
        self.may, self.sent, self.most = may, 0, 0
        self.held = WeakIdKeyDictionary()
        self.held.update({tensor.untyped_storage(): 0 for tensor in given})

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if "c10d" in name and not any(word in name for word in self.may):
            raise AssertionError(f"{name}: only pass_on may communicate here")
        if "c10d.send" in name:
            self.sent += sum(tensor.nbytes for tensor in args[0])
        made = function(*args, **(kwargs or {}))
        for tensor in filter(torch.is_tensor, tree_leaves(made)):
            memory = tensor.untyped_storage()  # it is forgotten when it is freed
            self.held.setdefault(memory, memory.nbytes())
        self.most = max(self.most, sum(self.held.values()))
        return made


def case(world_size, device):
    """Numbers for all ranks, and the positions that each of them has."""
    seed = torch.tensor(random.randrange(2**31))
    dist.broadcast(seed, src=0)  # all ranks draw what rank 0 draws
    torch.manual_seed(seed.item())
    numbers = torch.randn(4, BATCH, HEADS, TIME, SIZE, dtype=torch.float64)
    pieces = torch.arange(TIME).view(2 * world_size, -1)[torch.randperm(2 * world_size)]
    places[:] = [dealt.flatten().to(device) for dealt in pieces.chunk(world_size)]
    return numbers.to(device)


def whole_attention(q, k, v):
    """The truth, for all positions: the attention, and the logarithm of its total."""
    hidden = torch.ones(TIME, TIME, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.mT / SIZE**0.5).masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


def judge(rank, world_size, device):
    """Compare the gradients; return what was sent, in tensors of k's size."""
    q, k, v, grad = case(world_size, device)
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
    out, lse = whole_attention(*inputs)
    truth = torch.autograd.grad(out, inputs, grad)
    mine = [x.detach()[:, :, places[rank]] for x in (q, k, v, out, lse, grad)]
    with torch.no_grad(), Watch(*mine) as watch:
        got = backward(*mine)
    if got is None:
        return None
    for name, mine, whole in zip(NAMES, got, truth, strict=True):
        expected = whole[:, :, places[rank]]
        off = (mine - expected).abs().max().item()
        if mine.shape != expected.shape or not off < 1e-10:
            raise AssertionError(f"the gradient of {name} is {off:.0e} off")
    return watch.sent * world_size / k.nbytes


def play():
    """As rank 0 of a larger ring: return the most that backward() held at a time."""
    places[:] = torch.arange(TIME).chunk(PLAYED)
    mine = torch.randn(6, BATCH, HEADS, TIME // PLAYED, SIZE).double().unbind()
    q, k, v, out, lse, grad = mine
    patches = {"get_rank": lambda *_: 0, "get_world_size": lambda *_: PLAYED}
    with torch.no_grad(), mock.patch.multiple(dist, **patches):
        with Watch(*mine, may=()) as watch:
            backward(q, k, v, out, lse[..., :1], grad)
    return watch.most / (k.numel() * k.element_size())


def main(rank, world_size, device):
    if TIME % (2 * world_size):
        raise SystemExit(f"{world_size} ranks cannot cut {TIME} positions: try 2 to 4")
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    target = 4 * world_size - 2
    for _ in range(3):  # other numbers, and other pieces, each time
        tensors = judge(rank, world_size, device)
        if tensors is None:
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return {"solved": False}
        if tensors > target:
            raise AssertionError(f"sent {tensors:g} tensors, expected {target} at most")
    if (held := play()) > MOST:
        raise AssertionError(f"held {held:.0f} tensors with {PLAYED} ranks, not {MOST}")
    told = f"{tensors:g} tensors sent, no more than {held:.0f} held"
    print(f"[rank {rank}] gradients as whole, {told}", flush=True)
    return {"solved": True, "tensors": tensors, "held": held}


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

"""Data parallel: every rank holds all weights, all gradients, all of Adam's state.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/zero0.py

Written by notebooks/15_sharding.ipynb.
"""

import gc
import json
import os
import socket
import struct
import sys
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_lab.gpt import GPT, batch, loss_of

# HALVES of an all_reduce that a step sends; ROWS of text for each rank in a step
STAGE, HALVES, ROWS, STEPS, RATE = 0, 2, 3, 3, 1e-3


def sent():
    """Bytes that this process has sent over TCP, as gloo does; 0 if it cannot tell."""
    dist.barrier()  # then all that was sent before has arrived
    total = 0
    for fd in map(int, os.listdir("/proc/self/fd") if sys.platform == "linux" else []):
        with suppress(OSError, struct.error):  # closed, not TCP, or an old kernel
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as link:
                    info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 216)
                    once, again = struct.unpack_from("QQ", info, 200)
                    total += once - again  # a lost packet goes out again
    dist.barrier()  # a rank that leaves closes connections that others still count
    return total if dist.get_backend() == "gloo" else 0  # others do not use TCP here


class Zero:
    """Stage 0, which is DDP: everything is everywhere."""

    def __init__(self, model):
        self.model, self.units = model, []  # no unit is sharded
        self.ddp = DDP(model, gradient_as_bucket_view=True)
        self.adam = torch.optim.Adam(model.parameters(), RATE)

    def step(self, tokens, targets):
        # Every rank then holds the mean of all ranks' gradients.
        loss_of(self.ddp(tokens), targets).backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=False)  # DDP's buckets stay either way


def held(zero):
    """Bytes of weights, gradients, and Adam's state here now; a storage counts once."""
    weights = [*zero.model.parameters(), *zero.adam.param_groups[0]["params"]]
    gradients = [w.grad for w in weights if w.grad is not None]
    state = [t for each in zero.adam.state.values() for t in each.values() if t.ndim]
    kinds = [[t.untyped_storage() for t in k] for k in (weights, gradients, state)]
    return [sum({s.data_ptr(): s.nbytes() for s in kind}.values()) for kind in kinds]


def train(dtype, rank, world_size, device):
    """Train this way and, beside it, in one process that has the rows of all ranks."""
    torch.manual_seed(0)  # the same weights on every rank
    model, expected = GPT().to(device, dtype), GPT().to(device, dtype)
    expected.load_state_dict(model.state_dict())
    adam, diary = torch.optim.Adam(expected.parameters(), RATE), []
    moments = [w.register_post_accumulate_grad_hook for w in model.parameters()]
    for block in model.blocks:
        moments += [block.register_forward_pre_hook, block.register_forward_hook]
    for register in moments:
        register(lambda *_: diary.append(held(zero)))
    zero = Zero(model)
    for step in range(STEPS):
        diary.clear()
        rows = [each.to(device) for each in batch(step, ROWS * world_size)]
        before = sent()
        zero.step(*(each[rank::world_size] for each in rows))
        left = sent() - before
        adam.zero_grad()
        loss_of(expected(rows[0]), rows[1]).backward()
        adam.step()
    return zero, expected, [*diary, held(zero)], left


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    # In float64, rounding stays small even where Adam enlarges it.
    zero, expected, *_ = train(torch.float64, rank, world_size, device)
    for unit in zero.units:
        unit.gather()
    for w, e in zip(zero.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(w, e, atol=1e-9, rtol=0, msg="weights differ")
    *_, diary, left = train(torch.float32, rank, world_size, device)
    most = [max(kind) for kind in zip(*diary, strict=True)]
    row = sum(4 * e.numel() for e in expected.parameters())
    whole = [m > 0.8 * size for m, size in zip(most, (row, row, 2 * row), strict=True)]
    limit = HALVES * row * (world_size - 1) / world_size
    if whole != [STAGE < 3, STAGE < 2, STAGE < 1] or left > 1.01 * limit:
        raise AssertionError(f"stage {STAGE} held {most} bytes and sent {left}")
    print(f"[rank {rank}] as one process; weights, gradients, Adam: {most}", flush=True)
    return {"most": most, "diary": diary, "sent": left}


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

"""A step under DDP whose layers nap: how much of its sums does backward hide?

    torchrun --standalone --nproc-per-node 2 ddp_lab/cost/step.py

    [rank 0] slow: a step of ... ms

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
import statistics
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

LAYERS, WIDTH, STEPS = 4, 512, 3  # 512 x 512 weights are a bucket of 1 MB
DEVICES = {"slow": 0.06, "fast": 0.015}  # seconds of a layer's forward


class Nap(torch.autograd.Function):
    """What takes a device some time forward, and twice that backward."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Layer(nn.Linear):
    def forward(self, x):
        return Nap.apply(super().forward(x), self.seconds)


def noted(sent, bucket):
    """DDP's own all_reduce of one bucket; note its bytes."""
    sent.append(bucket.buffer().nbytes)
    return allreduce_hook(None, bucket)  # every rank now holds the mean of all


def take_steps(seconds, rank, world_size, device):
    """The median seconds of a step."""
    torch.manual_seed(0)  # the same weights on every rank
    model = nn.Sequential(*(Layer(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    for layer in model:
        layer.seconds = seconds
    ddp, sent, taken = DDP(model.to(device), bucket_cap_mb=1), [], []
    ddp.register_comm_hook(sent, noted)
    x = torch.full((1, WIDTH), 1.0 + rank, device=device)  # another sample on each rank
    for _ in range(2 + STEPS):  # DDP arranges its buckets in the first two
        ddp.zero_grad()
        sent.clear()
        dist.barrier()
        start = time.perf_counter()
        ddp(x).sum().backward()
        model[0].weight.grad[0, 0].item()  # on a GPU, only this waits for the sums
        taken.append(time.perf_counter() - start)
    if sent != [4 * WIDTH**2] * LAYERS:
        raise AssertionError(f"buckets of {sent} bytes")
    # Without biases a gradient grows with x, so the mean is that of the mean sample.
    mean_x = torch.full_like(x, (1 + world_size) / 2)
    (expected,) = torch.autograd.grad(model(mean_x).sum(), model[0].weight)
    torch.testing.assert_close(model[0].weight.grad, expected, msg="not the mean")
    return statistics.median(taken[2:])


def main(rank, world_size, device):
    facts = {}
    for name, seconds in DEVICES.items():
        facts[name] = take_steps(seconds, rank, world_size, device)
        told = f"a step of {1000 * facts[name]:.0f} ms"
        print(f"[rank {rank}] {name}: {told}", flush=True)
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

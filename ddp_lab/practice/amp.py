"""Mixed precision under DDP: compute in bfloat16, average and step in float32.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/amp.py

Autocast changes types inside forward() only. Each rank prints them:

    [rank 0] output: bfloat16
    [rank 0] loss: float32

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from copy import deepcopy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES, STEPS, RATE = 24, 3, 0.1

TYPES = {  # what a float32 model under bfloat16 autocast should consist of
    "output": "bfloat16",
    "loss": "float32",
    "weights": "float32",
    "gradients": "float32",
    "sent": "float32",
}


def make_data(device):
    """All the samples of y = 2a - b, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 2, generator=generator).to(device)  # (24, 2)
    return x, x @ torch.tensor([[2.0], [-1.0]], device=device)  # (24, 1)


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])  # (3,)


def train(model, x, y, autocast):
    """Train; return the types of the last output, loss, weight and gradient."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        # Around forward only: backward() computes in the types that forward() chose.
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=autocast):
            output = model(x)  # (samples, 1)
            loss = F.mse_loss(output, y)
        loss.backward()
        optimizer.step()
    weight = next(model.parameters())
    return [name(tensor) for tensor in (output, loss, weight, weight.grad)]


def noted(types, bucket):
    """DDP's own all_reduce of one bucket of gradients; note the type that travels."""
    types.add(name(bucket.buffer()))
    return allreduce_hook(None, bucket)  # every rank now holds the mean of all ranks


def name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def main(rank, world_size, device):
    if SAMPLES % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples")
    torch.manual_seed(0)  # the same first weights in every process
    (x, y), single, travelled = make_data(device), torch.nn.Linear(2, 1), set()
    model = DDP(deepcopy(single.to(device)))
    model.register_comm_hook(travelled, noted)
    start = flat(single.parameters())
    train(single, x, y, autocast=False)
    met = train(model, x[rank::world_size], y[rank::world_size], autocast=True)
    types = dict(zip(TYPES, [*met, " ".join(sorted(travelled))], strict=True))
    for what, dtype in types.items():
        print(f"[rank {rank}] {what}: {dtype}", flush=True)
    if types != TYPES:
        raise AssertionError(f"expected {TYPES}")
    weights = flat(model.parameters())
    rank0 = weights.clone()
    dist.broadcast(rank0, src=0)  # every rank now holds the weights of rank 0
    if not torch.equal(weights, rank0):
        raise AssertionError("the weights differ from those of rank 0")
    truth = flat(single.parameters())
    gap = ((weights - truth).norm() / (truth - start).norm()).item()
    if not 0 < gap < 0.05:  # a share of the way that training has gone
        raise AssertionError(f"{gap:.1%} away from float32, expected a little")
    return types | {"gap": gap}


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

"""One process, one model, all the samples: the training that DDP must reproduce.

    torchrun --standalone --nproc-per-node 1 ddp_lab/ddp/single.py

Written by notebooks/03_ddp_basics.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

SAMPLES, STEPS, RATE = 24, 3, 0.1


def make_data(device):
    """All the samples of y = 2a - b, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 2, generator=generator).to(device)  # (24, 2)
    return x, x @ torch.tensor([[2.0], [-1.0]], device=device)  # (24, 1)


def train_step(model, optimizer, x, y):
    """One step; return the loss, and the gradient as backward() left it."""
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    gradient = flat(p.grad for p in model.parameters())  # as step() would find it now
    optimizer.step()
    return loss.item(), gradient


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])  # (3,)


def one_process(x, y):
    """The truth: the weights after each step on all samples, by the textbook."""
    torch.manual_seed(0)
    weights = flat(torch.nn.Linear(2, 1).parameters()).to(x.device)  # (3,)
    x = torch.cat([x, torch.ones_like(y)], dim=1)  # (24, 3): a 1 for the bias
    for _ in range(STEPS):
        error = x @ weights - y.flatten()  # (24,)
        weights = weights - RATE * 2 * x.T @ error / SAMPLES
        yield weights


def show(tensor):
    return [round(number, 3) for number in tensor.tolist()]


def main(rank, world_size, device):
    x, y = make_data(device)
    truth = list(one_process(x, y))
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1).to(device)
    start = show(flat(model.parameters()))
    print(f"[rank {rank}] starts with weights {start}", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    facts = {"start": start, "losses": [], "gradients": [], "weights": []}

    for step, expected in enumerate(truth):
        loss, gradient = train_step(model, optimizer, x, y)
        weights = flat(model.parameters())
        at = f"[rank {rank}] step {step}:"
        print(f"{at} loss {loss:.3f}, gradient {show(gradient)}", flush=True)
        print(f"{at} weights {show(weights)}", flush=True)
        facts["losses"].append(loss)
        facts["gradients"].append(gradient.tolist())
        facts["weights"].append(weights.tolist())
        if not torch.allclose(weights, expected, atol=1e-5):
            ends = f"{show(weights)}, expected {show(expected)}"
            raise AssertionError(f"step {step} ends at {ends}")
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

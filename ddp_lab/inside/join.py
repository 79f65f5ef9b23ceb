"""DDP rebuilt, step 9: ranks that run out of batches at different times.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/join.py

Written by notebooks/11_inside_ddp.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS, ROWS, STEPS, RATE = 512, 4, 64, 8, 0.5
SIZE = 4  # bytes of a number
LAYER = SIZE * WIDTH**2, SIZE * WIDTH  # bytes of its weights, and of its biases
CALLS = {"ours": [sum(LAYER) * LAYERS], "torch": [sum(LAYER)] * LAYERS}  # in a step


class Ours(nn.Module):
    """Our DistributedDataParallel, so far."""

    def __init__(self, module):
        super().__init__()
        self.module, self.weights = module, list(module.parameters())
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)  # every rank now holds rank 0's

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish(self):
        """Average the gradients, between backward() and step()."""
        has = self.weights[0].grad is not None  # or this rank has no batch
        grads = [w.grad if has else torch.zeros_like(w) for w in self.weights]
        vote = grads[0].new_tensor([has])
        flat = torch.cat([each.flatten() for each in (*grads, vote)])
        dist.all_reduce(flat)  # every rank now holds the sums of all ranks
        self.voters = int(flat[-1])
        flat /= max(self.voters, 1)
        pieces = flat[:-1].split([weight.numel() for weight in self.weights])
        for weight, piece in zip(self.weights, pieces, strict=True):
            weight.grad = piece.view_as(weight)  # no copy: it lies in the buffer


def network(seed):
    """Four layers with a million numbers; the seed decides which."""
    torch.manual_seed(seed)
    pairs = [(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*(each for pair in pairs for each in pair))


def recorded():
    """This rank's calls so far, as [name, bytes]; the functions are private."""
    calls, recorders = [], [("_dump_fr_trace_json",), ("_dump_nccl_trace_json",)]
    if torch.__version__ >= "2.15":
        recorders.append(("_dump_fr_trace_json", "nccl2"))  # NCCL's, from there on
    for name, *backend in recorders:
        dump = getattr(torch._C._distributed_c10d, name, lambda *_: "{}")
        for call in json.loads(dump(True, False, *backend)).get("entries", []):
            numbers = sum(torch.Size(shape).numel() for shape in call["input_sizes"])
            calls.append([call["profiling_name"].rpartition(":")[2], SIZE * numbers])
    return calls


def measured(train, *given):
    """Train by this function; return the calls that it makes, and its milliseconds."""
    dist.barrier()  # all ranks begin together
    before, start = len(recorded()), time.perf_counter()
    train(*given)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()  # the host runs ahead
    took = 1000 * (time.perf_counter() - start)
    return recorded()[before:], took


def train_step(model, x, y):
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    if isinstance(model, Ours):
        model.finish()
    torch.optim.SGD(model.parameters(), RATE).step()  # it has nothing to remember


def check(module, expected):
    """Raise unless gradients and weights are those of one process, up to rounding."""
    for got, truth in zip(module.parameters(), expected.parameters(), strict=True):
        for a, b in ((got.grad, truth.grad), (got.detach(), truth.detach())):
            if a is not b and not (off := (a - b).norm() / b.norm()) < 1e-4:
                raise AssertionError(f"{off:.0%} away from one process")


def by_hand(model, batches):
    """Train until no rank has a batch; after each step yield how many ranks had one."""
    batches = iter(batches)
    while True:
        model.zero_grad()
        if batch := next(batches, None):
            nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        model.finish()
        if not model.voters:
            return
        torch.optim.SGD(model.parameters(), RATE).step()
        yield model.voters


def by_join(model, batches, divides_by_all=False):
    with Join([model], divide_by_initial_world_size=divides_by_all):
        for batch in batches:
            train_step(model, *batch)


def main(rank, world_size, device):
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(2, STEPS, world_size, ROWS, WIDTH, generator=draw).to(device)
    mine = list(zip(*data[:, : STEPS - rank, rank], strict=True))  # each has one fewer
    ours, expected = Ours(network(rank).to(device)), network(0).to(device)
    for step, voters in enumerate(by_hand(ours, mine)):
        train_step(expected, *data[:, step, :voters].flatten(1, 2))
        check(ours.module, expected)
    print(f"[rank {rank}] {len(mine)} batches, {step + 1} steps", flush=True)
    theirs = [DDP(network(rank).to(device), bucket_cap_mb=1) for _ in range(2)]
    by_join(theirs[0], mine)
    by_join(theirs[1], mine, divides_by_all=True)
    truth = expected[0].weight
    far = [(its.module[0].weight - truth).abs().max().item() for its in theirs]
    if step + 1 != STEPS or not far[0] < 1e-5 < far[1]:
        raise AssertionError(f"{step + 1} steps; torch's Join is {far} away")
    facts = {"batches": len(mine), "steps": step + 1, "far": far}
    facts |= {"ours": [], "torch": []}
    for _ in range(4):  # the same training again, all of it timed
        facts["ours"].append(measured(list, by_hand(ours, mine)))
        facts["torch"].append(measured(by_join, theirs[0], mine))
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

"""Gradient accumulation under DDP: a step of four micro-batches, taken in three ways.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/no_sync.py

    [rank 0] every: gradient 4.50, all_reduces: ...

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import math
import os
import time
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO = 4  # micro-batches of one sample each; the gradient of sample i is i

SECONDS = 0.03, 0.01  # of computing, in turn; even ranks begin with the long one


def every(model, micro_batches):
    """Plain DDP."""
    for sample in micro_batches:
        loss = model(sample).mean() / MICRO
        loss.backward()


def no_sync(model, micro_batches):
    """no_sync() around forward and backward, for all micro-batches but the last."""
    for turn, sample in enumerate(micro_batches):
        # Without the last turn outside, no gradient would ever reach another rank.
        with model.no_sync() if turn < MICRO - 1 else nullcontext():
            loss = model(sample).mean() / MICRO
            loss.backward()


def around_backward(model, micro_batches):
    """no_sync() around backward only, for all micro-batches but the last."""
    for turn, sample in enumerate(micro_batches):
        loss = model(sample).mean() / MICRO
        with model.no_sync() if turn < MICRO - 1 else nullcontext():
            loss.backward()


def noted(marks, bucket):
    """DDP's own all_reduce of one bucket of gradients; note when it began."""
    marks.append(("wait", time.time()))
    return allreduce_hook(None, bucket)  # every rank now holds the mean of all ranks


def compute(marks, rank):
    """Note the beginning of a micro-batch, and take the time of a larger model."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()  # a GPU's host runs ahead; its clock should not
    turn = sum(label != "wait" for label, _ in marks)
    marks.append((f"{turn + 1}", time.time()))
    time.sleep(SECONDS[(turn + rank) % 2])


def accumulate(way, samples, rank, device):
    """One step's gradient made in this `way`, and the number of all_reduces."""
    model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
    marks = []  # what began when: a micro-batch, by its number, or an all_reduce
    model.register_comm_hook(marks, noted)
    model.module.register_forward_pre_hook(lambda *_: compute(marks, rank))
    dist.barrier()  # the clocks of all ranks start together
    way(model, samples[rank].to(device))
    gradient = model.module.weight.grad.item()
    ends = [start for _, start in marks[1:]] + [time.time()]
    rows = [[*mark, end] for mark, end in zip(marks, ends, strict=True)]
    sent = sum(label == "wait" for label, *_ in rows)
    what = f"gradient {gradient:.2f}, all_reduces: {sent}"
    print(f"[rank {rank}] {way.__name__}: {what}", flush=True)
    return {"gradient": gradient, "all_reduces": sent, "rows": rows}


def main(rank, world_size, device):
    samples = torch.arange(1.0, MICRO * world_size + 1)
    samples = samples.view(world_size, MICRO, 1, 1)  # rank 0 has 1 to 4, and so on
    facts = {}
    for way in (every, no_sync, around_backward):
        facts[way.__name__] = accumulate(way, samples, rank, device)
        gradient = facts[way.__name__]["gradient"]
        if not math.isclose(gradient, samples.mean(), abs_tol=1e-4):
            raise AssertionError(f"{way.__name__}: expected {samples.mean():.2f}")
    if facts["no_sync"]["all_reduces"] != 1:
        raise AssertionError("no_sync should leave one all_reduce")
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

"""Exercise: predict a DDP step's time where ranks differ and gradients accumulate.

    torchrun --standalone --nproc-per-node 2 ddp_lab/cost/exercise_step.py

Until `step_time` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def step_time(seconds, leaves, micro, alpha, beta):
    """Return the seconds of a DDP step, from its start until all gradients are summed.

    seconds: by rank and layer, forward of one micro-batch; backward takes twice that.
    leaves: by layer, last layer first, the bytes of the bucket that its gradient
    completes, or 0. micro: how many micro-batches there are; only the last one sends.
    A bucket takes alpha + beta * bytes, and the buckets go one after another.
    """
    return None  # your code here


SHOWN = {  # two ranks, of which now one and now the other is slower
    "seconds": [[0.002, 0.004, 0.006], [0.003, 0.008, 0.002]],
    "leaves": [0, 3e6, 2e6],
    "micro": 2,
    "alpha": 0.001,
    "beta": 4e-9,
}


def draw():
    """A network, ranks and a wire, drawn anew: now the wire is slow, now a rank."""
    layers, ranks = random.randrange(2, 7), random.randrange(2, 5)
    seconds = [
        [random.uniform(1, 9) * 1e-3 for _ in range(layers)] for _ in range(ranks)
    ]
    leaves = [random.choice([0, 1e6, 4e6]) for _ in range(layers - 1)] + [2e6]
    wire = random.choice([1e-10, 2e-9, 1e-8])
    alpha = random.choice([1e-5, 8e-3])
    return dict(
        zip(SHOWN, (seconds, leaves, random.randrange(1, 5), alpha, wire), strict=True)
    )


def judged(cases):
    """By case, how far the answer is from the truth, as a share of it, and the truth.

    The truth: of all buckets, the one that would end last if all behind it had to wait
    for it. A bucket is ready when the last rank has made its gradients.
    """

    def truth(seconds, leaves, micro, alpha, beta):
        ends, layers = [], range(len(leaves))
        for i in layers:
            if leaves[i]:
                ready = max(
                    sum(row) * (3 * micro - 2) + 2 * sum(row[len(row) - 1 - i :])
                    for row in seconds
                )
                sizes = [leaves[j] for j in layers[i:] if leaves[j]]
                ends.append(ready + sum(alpha + beta * size for size in sizes))
        return max(ends)

    expected = [truth(**case) for case in cases]
    return [
        (abs(step_time(**case) / seconds - 1), seconds)
        for case, seconds in zip(cases, expected, strict=True)
    ]


def main(rank, world_size, device):
    if step_time(**SHOWN) is None:  # on all ranks alike
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return
    cases = [SHOWN, *(draw() for _ in range(200))]
    worst, (off, expected) = max(
        zip(cases, judged(cases), strict=True), key=lambda pair: pair[1][0]
    )
    told = f"{1000 * step_time(**SHOWN):.0f} ms; off by {off:.0%} at most"
    print(f"[rank {rank}] {told}", flush=True)
    if off > 0.01:
        raise AssertionError(f"{worst}: expected {expected:.4f} s")
    return {"solved": True, "milliseconds": round(1000 * step_time(**SHOWN), 1)}


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

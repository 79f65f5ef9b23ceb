"""Exercise: rebuild the buckets, as torch's DDP does in its second step.

    torchrun --standalone --nproc-per-node 2 ddp_lab/inside/exercise_rebuild.py

The layers are used in an order of which their registration says nothing:

    [rank 0] not yet

Written by notebooks/11_inside_ddp.ipynb.
"""

import gc
import json
import os
import secrets
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SIZES = [600, 700, 300, 600, 300, 800, 500, 200]  # bytes of the gradients
ORDER = [3, 2, 4, 0, 1, 7, 5, 6]  # in which they come
CAP = 900  # bytes: a bucket is full when it has as many, or more


def rebuild(order, sizes, cap, device):
    """Return the buckets for the next steps: lists of weights, the same on every rank.

    order: the weights, by number, in the order in which *this* rank's gradients came in
    its first step. sizes: the bytes of each. A bucket takes gradients until it holds
    `cap` bytes or more. All ranks take the order that rank 0 has seen; a tensor for a
    collective must be on `device`.
    """
    return None  # your code here


def cases(world_size):
    """Sizes, and by rank the order: first one for all ranks, then each its own."""
    numbers, drawn = range(len(SIZES)), [(SIZES, [ORDER] * world_size)]
    for _ in range(4):
        sizes = [100 + secrets.randbelow(700) for _ in numbers]
        shuffled = partial(secrets.SystemRandom().sample, numbers, len(numbers))
        orders = [shuffled() for _ in range(world_size)]
        drawn.append((sizes, orders))
    dist.broadcast_object_list(drawn)  # rank 0's cases are now on all ranks
    return drawn


def leaves(buckets, order):
    """After how many gradients each bucket leaves; none before the one ahead of it."""
    full, at = [], {weight: turn + 1 for turn, weight in enumerate(order)}
    for bucket in buckets:
        full.append(max([*full[-1:], *(at[weight] for weight in bucket)]))
    return full


def check(buckets, order, sizes):
    """Raise unless the buckets follow rank 0's order, each closed when it is full."""
    if sum(buckets, []) != order:
        raise AssertionError(f"{buckets} do not follow rank 0's order, {order}")
    for bucket in buckets:
        held = [sizes[weight] for weight in bucket]
        is_last = bucket is buckets[-1]
        too_little = sum(held) < CAP and not is_last
        if not held or too_little or sum(held[:-1]) >= CAP:
            raise AssertionError(f"a bucket holds {held} bytes, and the limit is {CAP}")


def main(rank, world_size, device):
    facts = {"solved": True}
    for sizes, orders in cases(world_size):
        got = rebuild(list(orders[rank]), list(sizes), CAP, device)
        found = [None] * world_size
        if got is not None:
            got = [list(map(int, bucket)) for bucket in got]  # also of tensors
        dist.all_gather_object(found, got)  # every rank now has the buckets of all
        if None in found:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        buckets = found[rank]
        if any(other != found[0] for other in found):
            raise AssertionError(f"the ranks' buckets differ: {found}")
        check(buckets, orders[0], sizes)
        if "leaves" not in facts:
            facts["leaves"] = leaves(buckets, orders[0])
            print(f"[rank {rank}] they leave after {facts['leaves']}", flush=True)
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

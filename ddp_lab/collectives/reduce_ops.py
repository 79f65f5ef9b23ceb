"""Every reduce operator on integers and floats: right, or refused by the backend.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/reduce_ops.py

    [rank 0] gave 3, tried 10 operators on 2 types, nothing came out wrong

Written by notebooks/02_collectives.ipynb.
"""

import functools
import gc
import json
import math
import operator
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

EVERYWHERE = ("SUM", "PRODUCT", "MIN", "MAX")  # what each backend must be able to do
TRUTHS = {
    "SUM": sum,
    "AVG": lambda gave: sum(gave) / len(gave),
    "PRODUCT": math.prod,
    "MIN": min,
    "MAX": max,
    "BAND": functools.partial(functools.reduce, operator.and_),
    "BOR": functools.partial(functools.reduce, operator.or_),
    "BXOR": functools.partial(functools.reduce, operator.xor),
    "PREMUL_SUM": lambda gave: sum(gave) * 0.5,
    "a function": None,  # there is no right result: it must be refused
}


def attempt(name, buf):
    """Return the result or None, and the refusal or None."""
    # PREMUL_SUM carries a factor. A private function makes it in every release;
    # newer releases also take dist.ReduceOp.PREMUL_SUM(0.5).
    made = {"PREMUL_SUM": dist._make_nccl_premul_sum(0.5)}
    made["a function"] = lambda a, b: a + b
    try:
        # Every rank ends up with the result, or every rank is refused.
        dist.all_reduce(buf, op=made.get(name) or getattr(dist.ReduceOp, name))
    except (RuntimeError, TypeError, ValueError) as refusal:
        return None, f"{type(refusal).__name__}: {refusal}".splitlines()[0]
    return buf.item(), None


def main(rank, world_size, device):
    gave = [2 * r + 3 for r in range(world_size)]
    results, refusals, left = {}, {}, {}
    for dtype in (torch.int64, torch.float32):
        for name, truth in TRUTHS.items():
            key = f"{name} {str(dtype).removeprefix('torch.')}"
            buf = torch.tensor([gave[rank]], dtype=dtype, device=device)  # (1,)
            got, refusal = attempt(name, buf)
            results[key], refusals[key], left[key] = got, refusal, buf.item()
            if refusal and name in EVERYWHERE:
                raise AssertionError(f"{key} was refused: {refusal}")
            if not refusal and not (truth and got == truth(gave)):
                raise AssertionError(f"{key} of {gave} gave {got}")
    tried = f"tried {len(TRUTHS)} operators on 2 types, nothing came out wrong"
    print(f"[rank {rank}] gave {gave[rank]}, {tried}", flush=True)
    facts = {"backend": dist.get_backend().rpartition(":")[2], "device": device.type}
    facts |= {"gave": gave[rank], "results": results}
    return facts | {"refusals": refusals, "left": left}


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

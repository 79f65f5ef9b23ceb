"""Every reduce operator on integers and floats: right, or refused by the backend.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/reduce_ops.py

Rank r gives 2r + 3. Which operators are refused depends on the backend and goes into
the facts; a wrong result, or a refusal of one that all backends know, is an error:

    [rank 0] gave 3, tried 10 operators on 2 types, nothing came out wrong

Written by notebooks/02_collectives.ipynb.
"""

import functools
import gc
import json
import operator
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

EVERYWHERE = ("SUM", "PRODUCT", "MIN", "MAX")  # what each backend must be able to do


def operators():
    """Name -> what to pass as `op`; the last one is not an operator of the library."""
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    ops = {name: getattr(dist.ReduceOp, name) for name in names}
    # PREMUL_SUM carries a factor, so it is made by a function, a private one so far.
    ops["PREMUL_SUM"] = dist._make_nccl_premul_sum(0.5)
    ops["a function"] = lambda a, b: a + b
    return ops


def attempt(op, number, dtype, device):
    """Reduce over all ranks: the result or None, the refusal or None, the buffer."""
    buf = torch.tensor([number], dtype=dtype, device=device)  # (1,)
    try:
        # Every rank ends up with the result, or every rank is refused: the answer
        # depends on op and dtype, which are the same everywhere, so no rank is left.
        dist.all_reduce(buf, op=op)
    except (RuntimeError, TypeError, ValueError) as refusal:
        words = f"{type(refusal).__name__}: {refusal}".splitlines()[0]
        return None, words, buf.item()  # where a refusal may have come too late
    return buf.item(), None, buf.item()


def truths(gave):
    """The same ten results, worked out alone from the numbers that the ranks gave."""
    fold = {"BAND": operator.and_, "BOR": operator.or_, "BXOR": operator.xor}
    return {
        "SUM": sum(gave),
        "AVG": sum(gave) / len(gave),
        "PRODUCT": functools.reduce(operator.mul, gave),
        "MIN": min(gave),
        "MAX": max(gave),
        **{name: functools.reduce(f, gave) for name, f in fold.items()},
        "PREMUL_SUM": sum(gave) * 0.5,
        "a function": None,  # only the operators of the library can be used
    }


@record
def main():
    with process_group() as (rank, world_size, device):
        gave = [2 * r + 3 for r in range(world_size)]
        expected = truths(gave)
        results, refusals, left = {}, {}, {}
        for dtype in (torch.int64, torch.float32):
            for name, op in operators().items():
                key = f"{name} {str(dtype).removeprefix('torch.')}"
                got, refusal, left[key] = attempt(op, gave[rank], dtype, device)
                if refusal is None and got != expected[name]:
                    raise AssertionError(f"{key}: {got}, expected {expected[name]}")
                if refusal and name in EVERYWHERE:
                    raise AssertionError(f"{key} was refused: {refusal}")
                results[key], refusals[key] = got, refusal
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.reduce_op.SUM  # noqa: B018  the spelling of old pages
        print(
            f"[rank {rank}] gave {gave[rank]}, tried {len(expected)} operators on"
            " 2 types, nothing came out wrong",
            flush=True,
        )
        old = [str(warning.message) for warning in caught]
        backend = "gloo" if dist.get_backend() == "gloo" else "nccl"
        facts = {"backend": backend, "gave": gave[rank], "old_spelling": old}
        facts |= {"results": results, "refusals": refusals, "left": left}
        print(json.dumps(facts), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()

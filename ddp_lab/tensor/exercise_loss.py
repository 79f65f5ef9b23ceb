"""Exercise: loss and gradient from logits that are cut by words, never gathered.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/exercise_loss.py

Once `loss_and_gradient` is written, the ranks check and count. Until then:

    [rank 0] not yet

Written by notebooks/17_tensor_parallel.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

POSITIONS, VOCAB, IGNORED = 40, 240, -100


def loss_and_gradient(logits, targets, first):
    """Return the mean cross-entropy, and its gradient for this rank's logits.

    logits: (positions, words), float64, for this rank's words, which begin with word
    number `first`. targets: (positions,), the same on every rank; positions with -100
    do not count. Both results must be within 1e-10 of what one process computes from
    all logits, however large. No rank may send more than 3 numbers for each position.
    """
    return None  # your code here


class EveryCall(TorchDispatchMode):
    """Adds up how many numbers a rank hands to communication calls, of every kind."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op.name().split("::")[-1].strip("_")
        if "c10d" in op.namespace and not name.startswith(("wait", "wrap")):
            tensors = [t for t in tree_leaves(args) if torch.is_tensor(t)]
            numbers = sum(t.nbytes for t in tensors) // 8  # as float64
            # A gather of c10d is also handed what comes out, n times what goes in.
            both = "gather" in name and op.namespace == "c10d"
            parts = dist.get_world_size() + 1 if both else 1
            self.numbers += numbers // parts
        return op(*args, **(kwargs or {}))


def cases():
    """Logits of all words, (POSITIONS, VOCAB), and targets: the same on every rank."""
    logits = torch.randn(4, POSITIONS, VOCAB, dtype=torch.float64)
    targets = torch.randint(VOCAB, (4, POSITIONS))
    logits[1] += 800  # exp of such a number is infinite
    logits[2, :, : VOCAB // 4] -= 900  # a rank's words may all be hopeless
    logits[2, ::2, -VOCAB // 4 :] += 900
    targets[3, ::3] = IGNORED
    return zip(("plain", "large", "far apart", "ignored"), logits, targets, strict=True)


def check(name, whole, targets, rank, world_size):
    """Compare loss and gradient with the whole; return the numbers sent, or None."""
    first, words = rank * VOCAB // world_size, VOCAB // world_size
    mine = whole[:, first : first + words].clone()
    with torch.inference_mode(), EveryCall() as calls:  # autograd may not help
        found = loss_and_gradient(mine, targets.clone(), first)
    if found is None:
        return None
    whole.requires_grad_()
    expected = F.cross_entropy(whole, targets, ignore_index=IGNORED)
    expected.backward()
    parts = (torch.as_tensor(part, dtype=whole.dtype) for part in found)
    loss, gradient = (part.detach() for part in parts)
    same = {"rtol": 0, "atol": 1e-10}
    for what, part, right in (
        ("loss", loss.to(expected), expected.detach()),
        ("gradient", gradient, whole.grad[:, first : first + words]),
    ):
        torch.testing.assert_close(part, right, **same, msg=f"{name}: {what} differs")
    if calls.numbers > 3 * POSITIONS:
        sent = f"{calls.numbers} numbers for {POSITIONS} positions"
        raise AssertionError(f"{name}: sends {sent}, more than 3 each")
    return calls.numbers


def main(rank, world_size, device):
    if VOCAB % world_size:
        raise SystemExit(
            f"{world_size} ranks cannot share {VOCAB} words: try 2, 3 or 4"
        )
    # Ranks that share a GPU: gloo gathers only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    seed = [torch.seed()]  # of numbers that no one has seen
    dist.broadcast_object_list(seed, src=0)
    torch.manual_seed(seed[0])  # the same numbers on every rank
    drawn, sent = list(cases()), []
    torch.seed()  # what was drawn cannot be drawn again
    for name, whole, targets in drawn:
        sent.append(check(name, whole.to(device), targets.to(device), rank, world_size))
        if sent[-1] is None:
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return
    most = max(sent) / POSITIONS
    print(
        f"[rank {rank}] as whole, {most:g} numbers sent for each position", flush=True
    )
    return {"solved": True, "numbers": most}


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

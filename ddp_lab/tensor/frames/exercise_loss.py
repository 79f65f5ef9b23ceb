"""Exercise: loss and gradient from logits that are cut by words, never gathered.

Once `loss_and_gradient` is written, the ranks check and count. Until then:

    [rank 0] not yet
"""

import json

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

POSITIONS, VOCAB, IGNORED = 40, 240, -100


def loss_and_gradient(logits, targets, first):
    return None  # the cell's function stands here


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

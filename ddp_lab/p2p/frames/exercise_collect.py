"""Exercise: rank 0 collects the numbers of all ranks, however many each of them has.

Once `collect` is written, two ranks print:

    [rank 0] had 3 numbers, collected [0, 1, 2, ...]
    [rank 1] had 2 numbers
"""

import faulthandler
import secrets
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 30  # seconds; the lesson's --timeout comes before


def collect(mine, rank, world_size):
    return None  # the cell's function stands here


def lists_of(rank, device):
    """First 3, 2, 1 or 4 numbers that can be told apart, then some at random."""
    count = 1 + (3 * rank + 2) % 4
    yield torch.arange(10 * rank, 10 * rank + count, device=device)
    drawn = [secrets.randbelow(1000) for _ in range(secrets.randbelow(30))]
    # Any number may be in a list, so none of them can stand for its end.
    yield torch.tensor([-1, torch.iinfo(torch.int64).min, *drawn], device=device)


class MessagesOnly(TorchDispatchMode):
    """Refuse each call that is no message of numbers, and note the sizes of those."""

    def __init__(self):
        super().__init__()
        self.sizes = {"sent": [], "received": []}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library:
            if name not in ("send", "recv_", "recv_any_source_"):
                raise AssertionError(f"{name}: messages alone are allowed here")
            if name == "recv_" and args[2] == dist.get_rank():
                raise AssertionError("a rank cannot receive from itself")
            (tensor,) = args[0]
            self.sizes["sent" if name == "send" else "received"].append(tensor.numel())
        return function(*args, **(kwargs or {}))


def flat(got):
    """Return the numbers that `collect` returned, as a list."""
    try:
        return torch.as_tensor(got).tolist()
    except (TypeError, ValueError):  # a list of pieces, one for each rank
        raise AssertionError("a list of pieces; make them one by torch.cat") from None


def refuse(*args, **kwargs):
    raise AssertionError("an object was sent; send tensors of numbers")


def check_sizes(lists, sizes):
    """Each buffer had the size of its message; none had a size thought of before."""
    sent, received = (
        sorted(sum((by_rank[way] for by_rank in sizes), []))
        for way in ("sent", "received")
    )
    if sent != received:
        raise AssertionError(f"messages of {sent} numbers, buffers of {received}")
    if sent and sent[-1] > (longest := sum(map(len, lists))):
        raise AssertionError(f"a message of {sent[-1]} numbers; there are {longest}")


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {}
    for mine in lists_of(rank, device):
        # If a message never comes, each rank shows the line where it waits, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        no_objects = patch.object(dist, "send_object_list", refuse)
        with no_objects, MessagesOnly() as messages:
            got = collect(mine.clone(), rank, world_size)
        answers = [None] * world_size
        # Every rank ends with what all had and got, so all come to one verdict.
        got = None if got is None else flat(got)
        answer = mine.tolist(), got, messages.sizes
        dist.all_gather_object(answers, answer)  # stuck here: isend without wait()?
        faulthandler.cancel_dump_traceback_later()  # leaving may take its time
        lists, (collected, *_), sizes = zip(*answers, strict=True)
        if collected is None:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if collected != sum(lists, []):
            raise AssertionError(f"got {collected}, expected {sum(lists, [])}")
        check_sizes(lists, sizes)
        if not facts:
            what = "" if rank else f", collected {collected}"
            print(f"[rank {rank}] had {len(mine)} numbers{what}", flush=True)
            facts = {"solved": True, "collected": collected}
    return facts

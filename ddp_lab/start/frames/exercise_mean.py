"""Exercise: the mean over all ranks, although their lists differ in length.

Once `mean_of_all` is written, two ranks print:

    [rank 0] 1 number of mean 10.0; all ranks together: ...
    [rank 1] 3 numbers of mean 20.0; all ranks together: ...
"""

import secrets
from math import isclose

import torch
import torch.distributed as dist


def mean_of_all(mine):
    return None  # the cell's function stands here


def numbers_of(rank, device):
    """First numbers with a mean that you can work out, then some at random."""
    yield torch.full((2 * rank + 1,), 10.0 * (rank + 1), device=device).double()
    count = 20 + secrets.randbelow(9)
    drawn = [secrets.randbelow(1000) for _ in range(count)]
    yield torch.tensor(drawn, device=device).double()


def main(rank, world_size, device):
    means = []
    for mine in numbers_of(rank, device):
        mean = mean_of_all(mine.clone())
        answer = mine.tolist(), None if mean is None else float(mean)
        answers = [None] * world_size
        # Every rank ends with the answers of all, so all come to one verdict.
        dist.all_gather_object(answers, answer)
        lists, got = (list(column) for column in zip(*answers, strict=True))
        if got == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        numbers = sum(lists, [])
        expected = sum(numbers) / len(numbers)
        # 1e-3: so that float32 is right, too.
        if not all(m is not None and isclose(m, expected, abs_tol=1e-3) for m in got):
            raise AssertionError(f"the means {got}, expected {expected} everywhere")
        means.append(got[rank])
    count = f"{2 * rank + 1} numbers" if rank else "1 number"
    own = f"{count} of mean {10.0 * (rank + 1)}"
    together = f"all ranks together: {round(means[0], 2)}"
    print(f"[rank {rank}] {own}; {together}", flush=True)
    return {"solved": True, "mean": means[0]}

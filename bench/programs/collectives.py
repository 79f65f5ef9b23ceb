"""Time an all_reduce of several sizes: the library's, a ring of our own, and a copy.

    torchrun --standalone --nproc-per-node 2 collectives.py ROUNDS

Every rank reports its seconds, by size in bytes and by competitor.
"""

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from ddp_lab.start.hello import process_group

SIZES = [2**10, 2**14, 2**18, 2**22, 2**26]  # bytes: 1 KiB to 64 MiB


def ring(buffer: torch.Tensor) -> None:
    """All_reduce by a chunked ring: each chunk goes round twice, 2(n - 1) steps."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    chunks = buffer.tensor_split(world_size)  # views; the first is one of the longest
    recv_buf = torch.empty_like(chunks[0])
    for step in range(2 * (world_size - 1)):
        send, take = (rank - step) % world_size, (rank - step - 1) % world_size
        received = recv_buf[: len(chunks[take])]
        # Together: over NCCL messages that are posted one by one also run one by one,
        # and every rank would wait with its send for the neighbor's receive.
        messages = [
            dist.P2POp(dist.isend, chunks[send], right),
            dist.P2POp(dist.irecv, received, left),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        if step < world_size - 1:
            chunks[take].add_(received)  # the first time round it collects
        else:
            chunks[take].copy_(received)  # the second time it tells everybody


def measure(size: int, device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Return this rank's seconds for a buffer of `size` bytes, by competitor."""
    buffer = torch.ones(size // 4, device=device)
    other = torch.empty_like(buffer)
    competitors: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(buffer),
        "our ring": lambda: ring(buffer),
        "memcpy": lambda: other.copy_(buffer),
    }
    seconds: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(rounds + 1):
        for name, work in competitors.items():
            buffer.fill_(1.0)
            dist.barrier()
            start = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            taken = time.perf_counter() - start
            expected = 1.0 if name == "memcpy" else float(dist.get_world_size())
            if not torch.all(buffer == expected):
                raise AssertionError(f"{name} of {size} bytes gave {buffer}")
            if turn:  # the first one warms up
                seconds[name].append(taken)
    return seconds


def main(rounds: int) -> None:
    """Measure every size, and report."""
    with process_group() as (_, _, device):
        backend = dist.get_backend_config()
        if dist.get_backend() == "gloo":
            device = torch.device("cpu")  # also where the ranks share a GPU
        seconds = {size: measure(size, device, rounds) for size in SIZES}
        print(json.dumps({"backend": backend, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))

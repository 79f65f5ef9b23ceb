"""Time an all_reduce of several sizes: the library's, a ring of our own, and a copy.

    torchrun --standalone --nproc-per-node 2 collectives.py ROUNDS

Every rank reports its seconds, by size in bytes and by competitor.
"""

import gc
import json
import sys
import time

import torch
import torch.distributed as dist
from ddp_lab.start_here import setup

SIZES = [2**10, 2**14, 2**18, 2**22, 2**26]  # bytes: 1 KiB to 64 MiB


def ring(buffer):
    """All_reduce by a chunked ring: each chunk goes round twice, 2(n - 1) steps."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    chunks = buffer.tensor_split(world_size)  # views; the first is one of the longest
    recv_buf = torch.empty_like(chunks[0])
    for step in range(2 * (world_size - 1)):
        send, take = (rank - step) % world_size, (rank - step - 1) % world_size
        received = recv_buf[: len(chunks[take])]
        work = dist.isend(chunks[send], right)
        dist.recv(received, left)
        work.wait()
        if step < world_size - 1:
            chunks[take].add_(received)  # the first time round it collects
        else:
            chunks[take].copy_(received)  # the second time it tells everybody


def main(rounds):
    _, _, device = setup()
    if dist.get_backend() == "gloo":
        device = torch.device("cpu")  # also where the ranks share a GPU
    seconds = {}
    for size in SIZES:
        buffer = torch.ones(size // 4, device=device)
        other = torch.empty_like(buffer)
        competitors = {
            "all_reduce": lambda buffer=buffer: dist.all_reduce(buffer),
            "our ring": lambda buffer=buffer: ring(buffer),
            "memcpy": lambda buffer=buffer, other=other: other.copy_(buffer),
        }
        seconds[size] = {name: [] for name in competitors}
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
                if turn:
                    seconds[size][name].append(taken)
    backend = dist.get_backend_config()
    print(json.dumps({"backend": backend, "seconds": seconds}), flush=True)
    dist.destroy_process_group()
    gc.collect()  # frees what still holds a gloo thread, which could abort the exit


if __name__ == "__main__":
    main(int(sys.argv[1]))

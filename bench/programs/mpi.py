"""Time the all_reduce of Open MPI, for the sizes of collectives.py.

    mpirun -n 2 python mpi.py ROUNDS SIZE ...

Rank 0 prints the seconds of the slowest rank, a list for each size in bytes.
"""

import json
import sys
import time

import numpy as np
from mpi4py import MPI


def main(rounds: int, sizes: list[int]) -> None:
    """Time each size, and print."""
    world = MPI.COMM_WORLD
    seconds: dict[int, list[float]] = {}
    for size in sizes:
        buffer, seconds[size] = np.empty(size // 4, np.float32), []
        for turn in range(rounds + 1):
            buffer.fill(1.0)
            world.Barrier()
            start = time.perf_counter()
            world.Allreduce(MPI.IN_PLACE, buffer)  # every rank now holds the sum
            taken = world.allreduce(time.perf_counter() - start, op=MPI.MAX)
            if not np.all(buffer == world.Get_size()):
                raise AssertionError(f"the sum of {size} bytes is {buffer}")
            if turn:
                seconds[size].append(taken)
    if world.Get_rank() == 0:
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(size) for size in sys.argv[2:]])

"""Bandwidth of an all_reduce: the library's, our own ring, and memcpy as the limit.

algbw is the size over the time; busbw is algbw * 2(n - 1) / n, as nccl-tests define
them: what each rank's link has to carry, so that different n can be compared. Where
mpi4py and mpirun are installed, Open MPI has a row, from a run of its own just after.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import Result, Timing
from ddp_lab.kit import torchrun

PROGRAM = Path(__file__).with_name("programs") / "collectives.py"
MPI = PROGRAM.with_name("mpi.py")


def measure(rounds: int) -> Iterator[Result]:
    """Yield a result for each size, with 2 ranks and with 4."""
    for ranks in (2, 4):
        run = torchrun(["--nproc-per-node", str(ranks), str(PROGRAM), str(3 * rounds)])
        by_mpi = _open_mpi(ranks, 3 * rounds, list(run["seconds"][0]))
        for size in run["seconds"][0]:
            by_rank = [by_size[size] for by_size in run["seconds"]]
            yield _result(int(size), ranks, by_rank, by_mpi.get(size))


def _open_mpi(ranks: int, rounds: int, sizes: list[str]) -> dict[str, list[float]]:
    """Return the seconds by size, or nothing where there is no Open MPI."""
    if not (importlib.util.find_spec("mpi4py") and shutil.which("mpirun")):
        print("Open MPI: absent", flush=True)
        return {}
    # More ranks than cores, and the root user of a container, are refused otherwise.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--oversubscribe", "-n", str(ranks), sys.executable, str(MPI)]
    command += [str(rounds), *sizes]
    ended = subprocess.run(
        command, env=os.environ | allowed, capture_output=True, text=True, timeout=300
    )
    if ended.returncode:
        print(f"Open MPI: failed: {ended.stderr.strip()[-300:]}", flush=True)
        return {}
    return json.loads(ended.stdout)


def _result(
    size: int,
    ranks: int,
    by_rank: list[dict[str, list[float]]],
    by_mpi: list[float] | None,
) -> Result:
    # A collective takes as long as its slowest rank.
    timings = [
        Timing(
            name, list(map(max, zip(*(rank[name] for rank in by_rank), strict=True)))
        )
        for name in by_rank[0]
    ]
    if by_mpi:
        timings.insert(1, Timing("Open MPI", by_mpi))
    rates = {}
    for timing in timings:
        algbw = size / timing.median / 1e9
        rates[timing.name] = {"GB/s algbw": algbw}
        if timing.name != "memcpy":
            rates[timing.name]["GB/s busbw"] = algbw * 2 * (ranks - 1) / ranks
    return Result("all_reduce", f"{size:,} bytes, {ranks} ranks", timings, rates)

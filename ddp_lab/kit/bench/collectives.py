"""Bandwidth of an all_reduce: the library's, our own ring, and memcpy as the limit.

algbw is the size over the time; busbw is algbw * 2(n - 1) / n, as nccl-tests define
them: what each rank's link has to carry, so that different n can be compared.
"""

from collections.abc import Iterator
from pathlib import Path

from ddp_lab.kit import torchrun
from ddp_lab.kit.bench import Result, Timing

PROGRAM = Path(__file__).with_name("programs") / "collectives.py"


def measure(rounds: int) -> Iterator[Result]:
    """Yield a result for each size, with 2 ranks and with 4."""
    for ranks in (2, 4):
        run = torchrun(["--nproc-per-node", str(ranks), str(PROGRAM), str(3 * rounds)])
        for size in run["seconds"][0]:
            yield _result(
                int(size), ranks, [by_size[size] for by_size in run["seconds"]]
            )


def _result(size: int, ranks: int, by_rank: list[dict[str, list[float]]]) -> Result:
    # A collective takes as long as its slowest rank.
    timings = [
        Timing(
            name, list(map(max, zip(*(rank[name] for rank in by_rank), strict=True)))
        )
        for name in by_rank[0]
    ]
    extra = {}
    for timing in timings:
        algbw = size / timing.median / 1e9
        extra[f"{timing.name}: algbw, GB/s"] = algbw
        if timing.name != "memcpy":
            extra[f"{timing.name}: busbw, GB/s"] = algbw * 2 * (ranks - 1) / ranks
    return Result("all_reduce", f"{size:,} bytes, {ranks} ranks", timings, extra)

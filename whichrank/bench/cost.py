"""What whichrank costs beside plain torchrun: seconds of a start, CPU of a step.

    python bench/cost.py [PAIRS]

A small script joins a group and makes 1 or 2,001 all_reduces on two ranks, under plain
torchrun and under `whichrank torchrun`, in turns. The seconds of a start are those of
one call; the CPU is user and system time of all processes, and that of a step is what
2,000 more calls take. Medians of the pairs, with the smallest and largest difference.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 2000
BIN = Path(sys.executable).parent
PROGRAM = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(1000))
dist.destroy_process_group()
"""
PLAIN = [str(BIN / "torchrun"), "--standalone"]
OURS = [str(BIN / "whichrank"), "torchrun"]


def taken(words: list[str], program: str, calls: int) -> tuple[float, float]:
    """Return the seconds that a run takes, and those of CPU."""
    began, before = time.monotonic(), os.times()
    words = [*words, "--nproc-per-node", "2", program, str(calls)]
    subprocess.run(words, check=True, capture_output=True)
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    return time.monotonic() - began, cpu


def told(what: str, pairs: list[tuple[float, float]], unit: str, scale: float) -> str:
    """Return the medians of both, and the differences."""
    plain, ours = (scale * statistics.median(side) for side in zip(*pairs, strict=True))
    more = [scale * (b - a) for a, b in pairs]
    middle = statistics.median(more)
    spread = f"{middle:+.2f} ({min(more):+.2f} to {max(more):+.2f})"
    return f"{what}: {plain:.2f} and {ours:.2f} {unit}; difference {spread}"


def main() -> None:
    """Measure the pairs, and print."""
    count = int(sys.argv[1]) if sys.argv[1:] else 7
    starts, cpus, steps = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "train.py")
        program.write_text(PROGRAM)
        for _ in range(count):
            one = [taken(words, str(program), 1) for words in (PLAIN, OURS)]
            all_ = [taken(words, str(program), 1 + STEPS) for words in (PLAIN, OURS)]
            starts.append((one[0][0], one[1][0]))
            cpus.append((one[0][1], one[1][1]))
            steps.append((all_[0][1] - one[0][1], all_[1][1] - one[1][1]))
    print(f"{count} pairs, plain torchrun and whichrank torchrun, two ranks")
    print(told("a start", starts, "seconds", 1))
    print(told("CPU of a start", cpus, "seconds", 1))
    print(told("CPU of a step of both ranks", steps, "ms", 1000 / STEPS))


if __name__ == "__main__":
    main()

"""What whichrank costs beside plain torchrun: seconds of a start, CPU of a step.

    python bench/cost.py [PAIRS]

A small script joins a group and makes 1 or 2,001 all_reduces on two ranks, under plain
torchrun and under `whichrank torchrun`, in turns. The seconds of a start are those of
one call; the CPU is user and system time of all processes, and that of a step is what
2,000 more calls take. Then three networks are trained, under plain torchrun and under
the witness of `examine`: the CPU of a step again, and the largest memory of a rank.
Medians of the pairs, with the smallest and largest difference.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from whichrank.examination.examined import WITNESS

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
NETWORKS = {  # by name: how many steps, and what is trained
    "10,000 weights": (1000, "nn.Linear(100, 100)", "torch.randn(32, 100)"),
    "25 million weights": (30, "nn.Linear(5000, 5000)", "torch.randn(32, 5000)"),
    "images": (40, "nn.Conv2d(3, 8, 3)", "torch.randn(32, 3, 128, 128)"),
}
TRAINS = """
import resource
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1])
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel({model})
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = {batch}
loader = DataLoader(TensorDataset(x), batch_size=len(x))
for _ in range(steps):
    for (part,) in loader:
        optimizer.zero_grad()
        model(part).pow(2).mean().backward()
        optimizer.step()
dist.destroy_process_group()
largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
sys.stdout.write(f"MiB {{largest}}\\n")  # at once, as ranks share the pipe
"""
PLAIN = [str(BIN / "torchrun"), "--standalone"]
OURS = [str(BIN / "whichrank"), "torchrun"]


def taken(
    words: list[str], program: list[str], calls: int
) -> tuple[float, float, float]:
    """Return the seconds that a run takes, those of CPU, and MiB if it prints them."""
    began, before = time.monotonic(), os.times()
    words = [*words, "--nproc-per-node", "2", *program, str(calls)]
    run = subprocess.run(words, check=True, capture_output=True, text=True)
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    largest = max(map(float, re.findall(r"MiB (\S+)", run.stdout)), default=0.0)
    return time.monotonic() - began, cpu, largest


def told(what: str, pairs: list[tuple[float, float]], unit: str, scale: float) -> str:
    """Return the medians of both, and the differences."""
    plain, ours = (scale * statistics.median(side) for side in zip(*pairs, strict=True))
    more = [scale * (b - a) for a, b in pairs]
    middle = statistics.median(more)
    spread = f"{middle:+.2f} ({min(more):+.2f} to {max(more):+.2f})"
    return f"{what}: {plain:.2f} and {ours:.2f} {unit}; difference {spread}"


def starts_and_calls(count: int, program: Path) -> Iterator[str]:
    """Yield what `whichrank torchrun` costs."""
    program.write_text(PROGRAM)
    starts, cpus, steps = [], [], []
    for _ in range(count):
        one = [taken(words, [str(program)], 1) for words in (PLAIN, OURS)]
        all_ = [taken(words, [str(program)], 1 + STEPS) for words in (PLAIN, OURS)]
        starts.append((one[0][0], one[1][0]))
        cpus.append((one[0][1], one[1][1]))
        steps.append((all_[0][1] - one[0][1], all_[1][1] - one[1][1]))
    yield told("a start", starts, "seconds", 1)
    yield told("CPU of a start", cpus, "seconds", 1)
    yield told("CPU of a call on both ranks", steps, "ms", 1000 / STEPS)


def examined(count: int, program: Path) -> Iterator[str]:
    """Yield what `examine` costs while a network is trained."""
    folder = program.parent / "facts"
    folder.mkdir()
    watched = [str(WITNESS), str(folder), "0", str(program)]
    for name, (steps, model, batch) in NETWORKS.items():
        program.write_text(TRAINS.format(model=model, batch=batch))
        cpus, memory = [], []
        for _ in range(count):
            runs = [
                (taken(PLAIN, words, 1), taken(PLAIN, words, 1 + steps))
                for words in ([str(program)], watched)
            ]
            plain, ours = (last[1] - first[1] for first, last in runs)
            cpus.append((plain, ours))
            memory.append((runs[0][1][2], runs[1][1][2]))
        yield told(f"examine, {name}: CPU of a step", cpus, "ms", 1000 / steps)
        yield told(f"examine, {name}: memory of a rank", memory, "MiB", 1)


def main() -> None:
    """Measure the pairs, and print."""
    count = int(sys.argv[1]) if sys.argv[1:] else 7
    print(f"{count} pairs, plain torchrun and whichrank, two ranks")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "train.py")
        for measure in (starts_and_calls, examined):
            for line in measure(count, program):
                print(line, flush=True)


if __name__ == "__main__":
    main()

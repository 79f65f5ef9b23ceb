"""How many images a second are trained on: an old page's program, and the lab's own.

Both crop and flip CIFAR-10 or its stand-in. Beyond that each does as it likes: this is
what a reader gains who changes over, and not a comparison of one thing at a time.
A trace of one training step is left beside the times.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import torch

from bench import FOLDER, Result, interleaved
from ddp_lab import ROOT
from ddp_lab.data import prepare
from ddp_lab.kit import torchrun

PROGRAMS = Path(__file__).with_name("programs")
BASELINE, STEP = PROGRAMS / "baseline.py", PROGRAMS / "step.py"
OURS = ROOT / "ddp_lab" / "cifar10" / "resnet.py"
GPU = torch.cuda.is_available()
# Steps of the baseline, after one that warms up: on a GPU more than its workers have
# got ready by then.
STEPS = 100 if GPU else 6
EPOCHS, IMAGES = 2, 50_000 if GPU else 2048  # of ours; the first epoch warms up
BATCH = 512 if GPU else 64


def measure(rounds: int, sizes: Iterable[int] = (1, 2)) -> Iterator[Result]:
    """Yield a result for each number of ranks, in seconds for a thousand images."""
    data = prepare().root
    for ranks in sizes:
        timings = interleaved(
            {
                "baseline": partial(_baseline, ranks, data),
                "cifar10/resnet.py": partial(_ours, ranks, data),
            },
            rounds,
            warm=0,  # both begin with work that they do not count
        )
        rates = {timing.name: {"images/s": 1000 / timing.median} for timing in timings}
        yield Result("training", f"1,000 images, ranks: {ranks}", timings, rates)
    trace = FOLDER / "training_step.json.gz"  # for https://ui.perfetto.dev
    ranks = min(torch.cuda.device_count() or 2, 2)  # on one GPU two would take turns
    torchrun(["--nproc-per-node", str(ranks), str(STEP), str(trace)])


def _baseline(ranks: int, data: Path) -> float:
    run = torchrun(
        ["--nproc-per-node", str(ranks), str(BASELINE), str(data), str(STEPS)]
    )
    return 1000 * max(run["seconds"]) / sum(run["images"])


def _ours(ranks: int, data: Path) -> float:
    sizes = (
        f"--epochs {EPOCHS} --train-images {IMAGES} --test-images 500 --batch {BATCH}"
    )
    run = torchrun(f"--nproc-per-node {ranks} {OURS} --data {data} {sizes}")
    return 1000 / min(run["speed"])

"""How many images a second are cropped, flipped and normalised, in two ways."""

from collections.abc import Iterator
from pathlib import Path

from bench import Result, Timing
from ddp_lab.data import prepare
from ddp_lab.kit import torchrun

PROGRAM = Path(__file__).with_name("programs") / "data.py"


def measure(rounds: int) -> Iterator[Result]:
    """Yield one result, for one process with one thread."""
    argv = ["--nproc-per-node", "1", str(PROGRAM), str(prepare().root), str(rounds)]
    facts = torchrun(argv).facts[0]
    timings = [Timing(name, seconds) for name, seconds in facts["seconds"].items()]
    rates = {t.name: {"images/s": facts["images"] / t.median} for t in timings}
    yield Result("data", f"{facts['images']:,} images", timings, rates)

"""Run the benchmarks: `make bench`.

    python -m bench [--rounds N] [SECTION ...]

Prints one table, and writes build/bench/SECTION.json and .png.
"""

import argparse
import importlib
import json
import os
import platform
import time
from pathlib import Path

from bench import FOLDER, Result, collectives, data, launch, training
from ddp_lab import ROOT
from ddp_lab.kit.cell.display import table

SECTIONS = {
    "launch": launch,
    "collectives": collectives,
    "data": data,
    "training": training,
}
if Path(__file__).with_name("classroom.py").exists():  # students do not have it
    SECTIONS["classroom"] = importlib.import_module("bench.classroom")


def machine() -> dict[str, str | int]:
    """Return what the times depend on: processor, cores, GPU, versions, date."""
    import torch

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "gpu": gpu,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def draw(name: str, results: list[Result], path: Path) -> None:
    """Draw a bar for each median, with a line from the smallest to the largest time."""
    from matplotlib.figure import Figure

    rows = [(result.what, timing) for result in results for timing in result.timings]
    figure = Figure(figsize=(9, 1 + 0.28 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for row, (_, timing) in enumerate(rows):
        axes.barh(row, timing.median, color="#56B4E9")
        span = [min(timing.seconds), max(timing.seconds)]
        axes.plot(span, [row, row], color="#101418", linewidth=1)
    labels = [f"{what}: {timing.name}" for what, timing in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds (bar: median; line: smallest to largest)")
    axes.set_title(name)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure the sections, print the table, write JSON and pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS])
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    here, rows = machine(), []
    for name in args.sections or SECTIONS:
        print(f"{name} ...", flush=True)
        results = list(SECTIONS[name].measure(args.rounds))
        content = {"machine": here, "results": [r.as_json() for r in results]}
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1))
        draw(name, results, FOLDER / f"{name}.png")
        rows += [row for result in results for row in result.rows()]
    head = ["section", "what", "who", "median (min to max)"]
    head += ["times as fast as the first", "at the median"]
    print("\n" + table([head, *rows]))
    print("\n" + ", ".join(f"{key}: {value}" for key, value in here.items()))
    print(f"{FOLDER.relative_to(ROOT)}: the same as JSON, and pictures")


if __name__ == "__main__":
    main()

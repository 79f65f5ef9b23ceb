"""Execute the lessons without a browser: `make lab`.

    python -m tools.lab [--nproc N] [NN ...]

papermill writes each executed notebook to build/lab, with an HTML copy beside it. A
lesson that fails does not stop the others; the table at the end shows its first error.
"""

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import papermill
from nbconvert import HTMLExporter

from ddp_lab import ROOT
from ddp_lab.kit.cell.display import table
from ddp_lab.kit.run.job import environment
from ddp_lab.kit.run.slurm import CLUSTER
from ddp_lab.kit.run.warm import WARM
from tools import notebooks

FOLDER = ROOT / "build" / "lab"
CELL_TIMEOUT = 900  # seconds; a run ends itself long before (see launch.py)


@dataclass(frozen=True)
class Result:
    """How one lesson went."""

    lesson: str
    seconds: float
    ranks: int
    error: str | None

    def row(self, gpus: int) -> list[str]:
        """Return the cells of the table; the backend follows `process_group()`."""
        backend = "nccl" if gpus >= self.ranks else "gloo"
        seconds, ranks = f"{self.seconds:.0f}", str(self.ranks)
        return [self.lesson, seconds, ranks, backend, self.error or "ok"]


def execute(path: Path, nproc: int | None) -> Result:
    """Execute the lesson `path` with `nproc` ranks, or with as many as it asks for."""
    target = FOLDER / path.name
    default = papermill.inspect_notebook(str(path))["nproc"]["default"]
    start, error = time.monotonic(), None
    try:
        papermill.execute_notebook(
            path,
            target,
            parameters={"nproc": nproc} if nproc else {},
            cwd=path.parent,
            progress_bar=sys.stderr.isatty(),
            execution_timeout=CELL_TIMEOUT,
            extra_arguments=notebooks.KERNEL_ARGUMENTS,
        )
    except papermill.PapermillExecutionError as failed:
        reason = f"{failed.ename}: {failed.evalue}".splitlines()[0]
        error = f"In [{failed.exec_count}] {reason}"
    except Exception as failed:  # the kernel died, say; the other lessons go on
        error = f"{type(failed).__name__}: {failed}".splitlines()[0]
    write_html(target)
    return Result(
        path.stem, time.monotonic() - start, nproc or int(default), error and error[:90]
    )


def write_html(executed: Path) -> None:
    """Write an HTML copy, pictures included, of the notebook `executed` beside it."""
    if executed.exists():
        exporter = HTMLExporter(embed_images=True)
        notebook = nbformat.read(executed, as_version=4)
        resources = {"metadata": {"path": str(executed.parent), "name": executed.stem}}
        html, _ = exporter.from_notebook_node(notebook, resources)
        executed.with_suffix(".html").write_text(html)


def main() -> None:
    """Execute the lessons, print the table; exit with 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=lambda n: int(n) if n else None)
    parser.add_argument("lessons", nargs="*")
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "figs", FOLDER.parent / "figs", dirs_exist_ok=True)
    lessons, results = notebooks.lessons(args.lessons), []
    WARM.lend(environment())  # or every lesson would import torch again
    CLUSTER.lend()  # or every lesson would wait for machines of its own
    for number, path in enumerate(lessons, start=1):
        print(f"[{number}/{len(lessons)}] {path.stem} ...", flush=True)
        results.append(execute(path, args.nproc))
        end = results[-1].error or "ok"
        print(f"    {end}, {results[-1].seconds:.0f} s", flush=True)

    import torch  # only now: it takes seconds, and only the table needs it

    head = ["lesson", "seconds", "ranks", "backend", "result"]
    gpus = torch.cuda.device_count()
    print("\n" + table([head, *(result.row(gpus) for result in results)]))
    print(f"\nexecuted notebooks and HTML copies: {FOLDER.relative_to(Path.cwd())}")
    sys.exit(any(result.error for result in results))


if __name__ == "__main__":
    main()

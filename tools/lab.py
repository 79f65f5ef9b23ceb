"""Execute the lessons without a browser: `make lab`.

    python -m tools.lab [--nproc N] [--jobs N] [NN ...]

papermill writes each executed notebook to build/lab, with an HTML copy beside it.
Lessons run side by side, the longest first, because many of their cells wait. A cell
tagged `alone` measures time: it has the machine to itself. A lesson that fails does
not stop the others; the table at the end shows its first error.
"""

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
import psutil
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from ddp_lab import ROOT, from_here
from ddp_lab.kit.cell.display import table
from ddp_lab.kit.run.here import environment
from ddp_lab.kit.run.warm import WARM
from tools import notebooks

FOLDER = ROOT / "build" / "lab"
CELL_TIMEOUT = 900  # seconds; a run ends itself long before (see launch.py)
ALONE = "alone"  # the tag of a cell that measures time
MEMORY = 4 << 30  # bytes that a lesson may take: its kernel, and four to eight ranks
LAUNCHES = ("%torchrun ", "%python ", "%machines ")
WAITS = (  # what makes a launch take long
    "--expect-failure",
    "--timeout",
    "--nnodes",
    "--events",
    "--max-restarts",
)
LINKS = {  # of a lesson, and of its page in build/lab
    r'href="\.\./': 'href="../../',
    r'href="([\dA]\d_\w+)\.ipynb': r'href="\1.html',
}
MOST_JOBS = 64  # ranks, and lessons at a time


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


class Machine:
    """Cells share the machine, but one that measures time has it alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = self._queued = 0  # cells; cells that want to be alone
        self._alone = False

    @contextmanager
    def cell(self, alone: bool) -> Iterator[None]:
        """Wait until a cell may run, and hold its place while it does."""
        with self._changed:
            if alone:
                self._queued += 1
                self._changed.wait_for(lambda: not self._running)
                self._queued -= 1
                self._alone = True
            else:
                self._changed.wait_for(lambda: not (self._queued or self._alone))
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._alone = self._alone and not alone
                self._changed.notify_all()


class Progress:
    """Which lessons are running, and how far each of them is."""

    EVERY = 10.0  # seconds between two lines where there is no terminal

    def __init__(self, lessons: int):
        self.lessons, self.done = lessons, 0
        self.at: dict[str, str] = {}  # "03: 12/58", by lesson
        self.start = self.told = time.monotonic()
        self._lock = threading.Lock()

    def cell(self, lesson: str, number: int, cells: int) -> None:
        """Note that a lesson has come to this cell."""
        with self._lock:
            self.at[lesson] = f"{lesson[:2]}: {number}/{cells}"
            now = time.monotonic()
            if sys.stdout.isatty():
                print(f"\r\033[K{self}", end="", flush=True)
            elif now - self.told > self.EVERY:
                self.told = now
                print(f"  {self}", flush=True)

    def end(self, result: Result) -> None:
        """Note that a lesson has ended, and say how."""
        with self._lock:
            self.done += 1
            self.at.pop(result.lesson, None)
            clear = "\r\033[K" if sys.stdout.isatty() else ""
            how = f"{result.error or 'ok'}, {result.seconds:.0f} s"
            count = f"[{self.done}/{self.lessons}]"
            print(f"{clear}{count} {result.lesson}: {how}", flush=True)

    def __str__(self) -> str:
        """Return, say, `1:05, 3 of 16 done; at cell 07: 12/58, 10: 40/98`."""
        cells = ", ".join(self.at[lesson] for lesson in sorted(self.at))
        return f"{self.time()}, {self.done} of {self.lessons} done; at cell {cells}"

    def time(self) -> str:
        """Return the minutes and seconds since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self.start), 60)
        return f"{minutes}:{seconds:02}"


class Client(PapermillNotebookClient):
    """papermill's own, which says how far it is, and asks for the machine."""

    lesson: str
    progress: Progress
    machine: Machine

    def execute_cell(self, cell: NotebookNode, cell_index: int, **options: Any) -> Any:
        self.progress.cell(self.lesson, cell_index + 1, len(self.nb.cells))
        with self.machine.cell(ALONE in cell.metadata.get("tags", [])):
            return super().execute_cell(cell, cell_index, **options)


class Lessons(Engine):
    """The engine that papermill executes our notebooks with."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, **options: Any
    ) -> None:
        client = Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=CELL_TIMEOUT,
            extra_arguments=notebooks.KERNEL_ARGUMENTS,
            config=notebooks.kernel_ports(),
        )
        for name in ("lesson", "progress", "machine"):
            setattr(client, name, options[name])
        client.execute()


papermill_engines.register("lessons", Lessons)


def execute(
    path: Path, nproc: int | None, progress: Progress, machine: Machine
) -> Result:
    """Execute the lesson `path` with `nproc` ranks, or with as many as it asks for."""
    target = FOLDER / path.name
    default = papermill.inspect_notebook(str(path))["nproc"]["default"]
    start, error = time.monotonic(), None
    try:
        papermill.execute_notebook(
            path,
            target,
            parameters={"nproc": nproc} if nproc else {},
            engine_name="lessons",
            progress_bar=False,
            lesson=path.stem,
            progress=progress,
            machine=machine,
        )
    except papermill.PapermillExecutionError as failed:
        reason = f"{failed.ename}: {failed.evalue}".splitlines()[0]
        error = f"In [{failed.exec_count}] {reason}"
    except Exception as failed:  # the kernel died, say; the other lessons go on
        error = f"{type(failed).__name__}: {failed}".splitlines()[0]
    write_html(target, path.parent)
    seconds, ranks = time.monotonic() - start, nproc or int(default)
    result = Result(path.stem, seconds, ranks, error and error[:90])
    progress.end(result)
    return result


def write_html(executed: Path, folder: Path) -> None:
    """Put the images of `folder` into the notebook `executed`; write an HTML copy."""
    if executed.exists():
        notebook = notebooks.with_images(notebooks.read(executed), folder)
        nbformat.write(notebook, executed)
        resources = {"metadata": {"name": executed.stem}}
        html, _ = HTMLExporter().from_notebook_node(notebook, resources)
        for link, there in LINKS.items():
            html = re.sub(link, there, html)
        executed.with_suffix(".html").write_text(html)


def length(path: Path) -> int:
    """Return about how long a lesson takes: its launches, and what they wait for."""
    cells = notebooks.read(path).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    return sum(map(code.count, LAUNCHES)) + 3 * sum(map(code.count, WAITS))


def bearable() -> int:
    """Return how many lessons at a time this machine bears."""
    cores = psutil.cpu_count() or 1
    return max(1, min(cores * 2, psutil.virtual_memory().total // MEMORY))


def number(name: str) -> Callable[[str], int | None]:
    """Return what reads the variable `name` of make: a number, or nothing."""

    def parse(word: str) -> int | None:
        if word and not (word.isdecimal() and 1 <= int(word) <= MOST_JOBS):
            said = f"{name} is a number from 1 to {MOST_JOBS}, as in {name}=4"
            raise argparse.ArgumentTypeError(f"{said}, not {word!r}")
        return int(word) if word else None

    return parse


def main() -> None:
    """Execute the lessons, print the table; exit with 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=number("NPROC"))
    parser.add_argument("--jobs", type=number("JOBS"))
    parser.add_argument("lessons", nargs="*")
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    lessons, where = notebooks.lessons(args.lessons), from_here(FOLDER)
    jobs = args.jobs or bearable()
    count = f"{len(lessons)} lessons" if len(lessons) > 1 else "1 lesson"
    print(f"{count}, up to {jobs} at a time; first torch is imported", flush=True)
    WARM.lend(environment())  # or every lesson would import torch again
    os.chdir(notebooks.FOLDER)  # where JupyterLab starts their kernels
    progress, machine = Progress(len(lessons)), Machine()
    crew = ThreadPoolExecutor(jobs)
    try:
        started = {
            path: crew.submit(execute, path, args.nproc, progress, machine)
            for path in sorted(lessons, key=length, reverse=True)
        }
        results = [started[path].result() for path in lessons]
    except KeyboardInterrupt:  # the kernels end with us, and their ranks with them
        WARM.stop()
        print("\nstopped", flush=True)
        os._exit(130)

    import torch  # only now: it takes seconds, and only the table needs it

    head = ["lesson", "seconds", "ranks", "backend", "result"]
    gpus = torch.cuda.device_count()
    print("\n" + table([head, *(result.row(gpus) for result in results)]))
    print(f"\n{progress.time()} in all; executed notebooks and HTML copies: {where}")
    sys.exit(any(result.error for result in results))


if __name__ == "__main__":
    main()

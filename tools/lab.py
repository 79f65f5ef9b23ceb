"""Execute the lessons without a browser: `make lab`.

    python -m tools.lab [--nproc N] [--jobs N] [NN ...]

papermill writes each executed notebook to build/lab, with an HTML copy beside it. What
its cells gave is compared with what is committed, as nbval does, where it should be the
same: on CPUs, with the lesson's own number of ranks. The checks in the cells hold
everywhere.
Lessons run side by side, the longest first, because many of their cells wait. A cell
tagged `alone` measures time: it has the machine to itself. A lesson that fails does
not stop the others; the table at the end shows where it did.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from ddp_lab.kit import WARM
from ddp_lab.kit.cell.display import table
from tools import notebooks
from tools.compare import Difference, differences
from whichrank import channels, environment

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
HEAD = ["lesson", "seconds", "ranks", "result"]


@dataclass(frozen=True)
class Result:
    """How one lesson went."""

    lesson: str
    seconds: float
    ranks: int
    error: str = ""
    """where it failed, and with which words"""
    differences: list[Difference] = field(default_factory=list)
    compared: bool = True
    """whether outputs were compared; the checks in the cells always hold"""

    @property
    def is_ok(self) -> bool:
        """Whether no cell failed or gave anything else than what is committed."""
        return not (self.error or self.differences)

    def __str__(self) -> str:
        """Return, say, `ok`, `differs at cell 12` or `failed at cell 12: ...`."""
        numbers = [str(each.number) for each in self.differences]
        cells = f"cell{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        ok = "ok" if self.compared else "ok, outputs not compared"
        return self.error or (f"differs at {cells}" if numbers else ok)

    def row(self) -> list[str]:
        """Return the cells of the table."""
        return [self.lesson, f"{self.seconds:.0f}", str(self.ranks), str(self)]


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
            how = f"{result}, {result.seconds:.0f} s"
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
        if cell.cell_type == "code":
            code = [each.cell_type == "code" for each in self.nb.cells]
            self.progress.cell(self.lesson, sum(code[: cell_index + 1]), sum(code))
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
    path: Path, nproc: int | None, alike: bool, progress: Progress, machine: Machine
) -> Result:
    """Execute a lesson, and compare what its cells gave with what is committed.

    Args:
        path: its notebook.
        nproc: the number of ranks; None for as many as it asks for.
        alike: whether this machine gives what is committed.
        progress: is told how far it is.
        machine: its cells ask for it.
    """
    target = FOLDER / path.name
    default = int(papermill.inspect_notebook(str(path))["nproc"]["default"])
    ranks = nproc or default
    alike = alike and ranks == default
    start, error = time.monotonic(), ""
    try:
        papermill.execute_notebook(
            path,
            target,
            parameters={"nproc": ranks} if ranks != default else {},
            engine_name="lessons",
            progress_bar=False,
            lesson=path.stem,
            progress=progress,
            machine=machine,
        )
    except papermill.PapermillExecutionError as failed:
        reason = f"{failed.ename}: {failed.evalue}".splitlines()[0]
        error = f"failed at cell {failed.exec_count}: {reason}"
    except Exception as failed:  # the kernel died, say; the other lessons go on
        error = f"failed: {type(failed).__name__}: {failed}".splitlines()[0]
    found: list[Difference] = []
    if alike and not error:
        found += differences(notebooks.read(path), notebooks.read(target))
    write_html(target, path.parent)
    seconds = time.monotonic() - start
    result = Result(path.stem, seconds, ranks, error[:90], found, alike)
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


def unlike() -> str:
    """Return why this machine gives other outputs than those committed; "" if not."""
    if os.environ.get(channels.NNODES):
        return "the ranks are on several nodes"
    # A process of its own: torch would take seconds to import, and memory to keep.
    python = WARM.python(environment()) or sys.executable
    ask = [python, "-c", "import torch; print(torch.accelerator.device_count())"]
    said = subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=True).stdout
    return "there are accelerators" * bool(int(said))


def main() -> None:
    """Execute the lessons, print the table; exit with 1 if any failed or differs."""
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
    if why := unlike():
        print(f"outputs are not compared with those committed: {why}", flush=True)
    os.chdir(notebooks.FOLDER)  # where JupyterLab starts their kernels
    progress, machine = Progress(len(lessons)), Machine()
    crew = ThreadPoolExecutor(jobs)
    try:
        started = {
            path: crew.submit(execute, path, args.nproc, not why, progress, machine)
            for path in sorted(lessons, key=length, reverse=True)
        }
        results = [started[path].result() for path in lessons]
    except KeyboardInterrupt:  # the kernels end with us, and their ranks with them
        WARM.stop()
        print("\nstopped", flush=True)
        os._exit(130)

    print("\n" + table([HEAD, *(result.row() for result in results)]))
    for result in results:
        for difference in result.differences:
            print(f"\n{result.lesson}, {difference}")
    print(f"\n{progress.time()} in all; executed notebooks and HTML copies: {where}")
    sys.exit(not all(result.is_ok for result in results))


if __name__ == "__main__":
    main()

"""%torchrun and %python: the command of a terminal in a cell."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import DisplayHandle, display

from ddp_lab import workplace
from ddp_lab.kit.cell import display as screen
from ddp_lab.kit.run import launch
from ddp_lab.kit.run.job import environment
from ddp_lab.kit.run.result import Run, RunFailed, RunInterrupted
from ddp_lab.kit.run.warm import WARM


def load(shell: InteractiveShell) -> None:
    """Register the magics in `shell`, and go where its notebook works."""
    os.chdir(workplace(Path.cwd()))
    magics: Any = shell.magics_manager
    magics.register_function(torchrun, "line", "torchrun")
    magics.register_function(python, "line", "python")
    if formatter := shell.display_formatter:
        formatter.formatters["text/html"].for_type(Run, screen.summary)
    WARM.start(environment())  # its imports go on while the reader reads


def torchrun(line: str) -> Run:
    """%torchrun [--timeout SECONDS] [--expect-failure] [--cold] TORCHRUN-ARGUMENTS

    Run torchrun with these arguments, show every rank's lines, and return the `Run`.
    A failing run raises; with --expect-failure a successful one does. A run that stops
    at an exercise's stub, a bare NotImplementedError, is shown and does not raise.
    """
    return _run(launch.torchrun, line)


def python(line: str) -> Run:
    """%python [--timeout SECONDS] [--expect-failure] [--cold] PYTHON-ARGUMENTS

    The same for a program that starts its ranks itself.
    """
    return _run(launch.python, line)


def _run(launcher: Callable[..., Run], line: str) -> Run:
    options, command = _split(line)
    output = _Screen()
    try:
        run = launcher(command, watch=output.update, **options)
    except (RunFailed, RunInterrupted) as failed:
        if failed.run is None:
            raise
        stub = _stops_at_stub(failed.run)
        output.finish(failed.run, raises=not stub)
        if not stub:
            raise
        return failed.run
    output.finish(run)
    return run


def _stops_at_stub(run: Run) -> bool:
    """Tell whether a run has failed only because an exercise is not yet written.

    What a library has not implemented, it says in words behind the name.
    """
    return run.failure is not None and run.failure.cause == "NotImplementedError"


def _split(line: str) -> tuple[dict, list[str]]:
    """Return the kit's own options, which come first, and the rest of the line."""
    words, options = shlex.split(line), dict[str, Any]()
    while words and words[0] in ("--timeout", "--expect-failure", "--cold"):
        option = words.pop(0).removeprefix("--").replace("-", "_")
        try:
            options[option] = float(words.pop(0)) if option == "timeout" else True
        except (IndexError, ValueError):
            raise UsageError("--timeout takes a number of seconds") from None
    if not words:
        raise UsageError("which program? For example: --nproc-per-node 2 program.py")
    return options, words


class _Screen:
    """A cell's output: live while the run goes on, in rank order once it has ended.

    The live part is one display that is updated in place and ends as the command line,
    because a stored output should not depend on when which rank printed.
    """

    def __init__(self) -> None:
        self.handle: DisplayHandle | None = None
        self.next = 0.0  # seconds of the run after which to show more of it

    def update(self, run: Run) -> None:
        if self.handle is None:
            self.handle = display(screen.command(run), raw=True, display_id=True)
            return
        if run.seconds < self.next:
            return
        self.next = run.seconds * 1.1 + 0.2  # the longer it takes, the less often
        command, lines = screen.command(run), screen.bundle(run, live=True)
        both = {mime: command[mime] + "\n" + lines[mime] for mime in command}
        self.handle.update(both, raw=True)

    def finish(self, run: Run, raises: bool = False) -> None:
        """Show the run that has ended; if it raises, the error tells of its failure."""
        if self.handle:
            self.handle.update(screen.command(run), raw=True)
        lines = screen.bundle(run, failure=not raises)
        if lines["text/html"]:
            display(lines, raw=True)

"""Launch a program as a terminal would, watch it, and tell by rank what became of it.

`torchrun` runs a real torchrun in a subprocess, with a file for each rank's output.
`python` does the same for a program that starts its ranks itself. Whatever ends the
caller ends the run (see guard.py).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_lab.kit.failure import Failure, find_failure
from ddp_lab.kit.logs import read, read_ranks, split_by_prefix
from ddp_lab.kit.warm import WARM, write_python

GUARD = Path(__file__).with_name("guard.py")
OWN_RENDEZVOUS = re.compile(r"--(standalone|nnodes|node|rdzv|master)")
START_UP = 45.0  # seconds: importing torch on a busy machine is slow, and no hang
# The kernel's own settings, which would change how a program prints or draws.
COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR")
DROPPED = ("MPLBACKEND", "PYTHONUNBUFFERED", *COLOURS)


@dataclass(frozen=True)
class Run:
    """What a run printed, reported and ended with. Each list is indexed by rank."""

    command: str
    """The plain command that a terminal would take."""
    lines: list[list[str]]
    """stdout without the facts."""
    facts: list[dict]
    """The JSON objects that a rank printed, merged into one."""
    warnings: list[list[str]]
    """stderr without noise and tracebacks."""
    exit_codes: list[int | None]
    """Negative for a signal, None for a rank that did not end by itself."""
    seconds: float
    failure: Failure | None = field(repr=False)

    def __getitem__(self, name: str) -> list:
        """Return the fact `name` by rank; KeyError says who did not report it."""
        missing = [rank for rank, facts in enumerate(self.facts) if name not in facts]
        if missing or not self.facts:
            known = sorted({name for facts in self.facts for name in facts})
            raise KeyError(f"ranks {missing} reported no {name!r}; reported: {known}")
        return [facts[name] for facts in self.facts]

    def __repr__(self) -> str:
        end = f"failed: {self.failure.cause}" if self.failure else "ok"
        return f"<Run, {len(self.lines)} ranks, {end}>"

    def _repr_html_(self) -> str:
        from ddp_lab.kit import show

        return show.summary(self)


class RunFailed(Exception):
    """A run failed, or succeeded although it was expected to fail; see `.run`."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run

    def _render_traceback_(self) -> list[str]:
        """Show the cause in a notebook, not the launcher's own frames."""
        return [f"RunFailed: {self}"]


def torchrun(
    command: str | Sequence[str],
    *,
    timeout: float = 120,
    expect_failure: bool = False,
    cold: bool = False,
    watch: Callable[[Run], None] | None = None,
) -> Run:
    """Run `torchrun COMMAND` and return the result.

    Args:
        command: torchrun's own arguments, one string or a list. `--standalone` is added
            unless the command chooses a rendezvous of its own.
        timeout: seconds without a sign of life (output of any rank) after which every
            process of the run is ended. Until the first, it is at least `START_UP`.
        expect_failure: return a run that fails, and raise if it succeeds.
        cold: import torch anew in every process, as a terminal does (see warm.py).
        watch: called with the result so far, five times a second.

    Raises:
        RunFailed: says the root cause first; `.run` holds the rest.
    """
    argv = shlex.split(command) if isinstance(command, str) else list(command)
    if not any(OWN_RENDEZVOUS.match(argument) for argument in argv):
        argv.insert(0, "--standalone")
    folder = Path(tempfile.mkdtemp(prefix="ddp_lab-"))
    module = ["-m", "torch.distributed.run", "--redirects", "3"]
    words = [*module, "--log-dir", str(folder), *argv]
    command = shlex.join(["torchrun", *argv])
    run = _watched(command, words, folder, timeout, cold, watch)
    return _judged(run, expect_failure)


def python(
    command: str | Sequence[str],
    *,
    timeout: float = 120,
    expect_failure: bool = False,
    cold: bool = False,
    watch: Callable[[Run], None] | None = None,
) -> Run:
    """Run `python COMMAND`, a program that starts its ranks itself; see `torchrun`.

    The ranks share one output: a line `[rank 1] ...` belongs to rank 1, a JSON object
    to its "rank", and anything else to rank 0.
    """
    argv = shlex.split(command) if isinstance(command, str) else list(command)
    folder = Path(tempfile.mkdtemp(prefix="ddp_lab-"))
    command = shlex.join(["python", *argv])
    run = _watched(command, argv, folder, timeout, cold, watch)
    return _judged(run, expect_failure)


def _judged(run: Run, expect_failure: bool) -> Run:
    """Return `run`, or raise if it ended in another way than expected."""
    if expect_failure and run.failure is None:
        raise RunFailed(f"the run succeeded, but was to fail\n\n$ {run.command}", run)
    if run.failure and not expect_failure:
        raise RunFailed(f"{run.failure.report()}\n\n$ {run.command}", run)
    return run


def _watched(command, argv, folder, timeout, cold, watch) -> Run:
    """Run `python ARGV` under the guard with its files in `folder`; return the end."""
    start = time.monotonic()
    guard = _start(argv, folder, cold or bool(os.environ.get("DDP_LAB_COLD")))
    try:
        timed_out = _wait(guard, folder, timeout, watch, command, start)
        guard.stdin.close()  # ends a run that has timed out
        code = guard.wait()
        run = _result(command, folder, start, code, timeout if timed_out else None)
    finally:
        guard.stdin.close()  # however we leave, the guard ends every process of the run
        guard.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if watch:
        watch(run)
    return run


def _wait(guard, folder, timeout, watch, command, start) -> bool:
    """Wait until the run ends (False) or has been silent for too long (True)."""
    size, changed = 0, start
    while guard.poll() is None:
        now = time.monotonic()
        written = sum(file.stat().st_size for file in folder.rglob("*.log"))
        written += (folder / "out").stat().st_size
        if written != size:
            size, changed = written, now
        if now - changed > (timeout if size else max(timeout, START_UP)):
            return True
        if watch:
            watch(_result(command, folder, start))
        while guard.poll() is None and time.monotonic() < now + 0.2:
            time.sleep(0.01)
    return False


def environment() -> dict[str, str]:
    """Return the environment in which every run begins."""
    env = {name: value for name, value in os.environ.items() if name not in DROPPED}
    env |= {"TERM": "dumb", "PYTHONFAULTHANDLER": "1"}
    env.setdefault("OMP_NUM_THREADS", "1")  # torchrun does so too, and prints a banner
    return env


def _start(argv: list[str], folder: Path, cold: bool) -> subprocess.Popen:
    env = environment()
    warm = None if cold else WARM.python(env)
    # What torchrun starts its workers with: a documented hook.
    env["PYTHON_EXEC"] = warm or write_python(folder, "-")
    python = warm or sys.executable
    command = [sys.executable, str(GUARD), uuid.uuid4().hex, python, *argv]
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=env,
            start_new_session=True,  # the stop button is for the caller alone
        )


def _result(command, folder, start, code=None, timeout=None) -> Run:
    """Return the result so far; it is final once the exit code is known."""
    seconds = time.monotonic() - start
    agent = read(folder / "err")
    logs, shared = read_ranks(folder), command.startswith("python ")
    if shared:
        logs = split_by_prefix(read(folder / "out"), agent)
    failure, exit_codes = None, [code for _ in logs]
    if code or timeout:
        failure, exit_codes = find_failure(logs, agent, code, timeout)
        if shared and failure.rank is not None:
            failure = replace(failure, rank=None)  # nothing tells whose stderr it was
    return Run(
        command=command,
        lines=[log.lines for log in logs],
        facts=[log.facts for log in logs],
        warnings=[log.warnings for log in logs],
        exit_codes=exit_codes,
        seconds=seconds,
        failure=failure,
    )

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
from dataclasses import dataclass, field
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.explain import logs
from ddp_lab.kit.explain.calls import Call
from ddp_lab.kit.explain.failure import Failure, find_failure, find_notes
from ddp_lab.kit.run import guard, probe
from ddp_lab.kit.run.warm import WARM, write_python

OWN_RENDEZVOUS = re.compile(r"--(standalone|nnodes|node|rdzv|master)")
START_UP = 45.0  # seconds: importing torch on a busy machine is slow, and no hang
SHORT = 20_000  # bytes; longer output is not shown whole, and kept in a file
TOLD: set[str] = set()  # what the reader has been told once
KEPT = 5  # runs whose long output is kept; with 0 none is
MOST = 2_000_000_000  # bytes that a run may print before it is ended
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
    calls: list[list[Call]] = field(default_factory=list, repr=False)
    """What each rank has called of the communication library, oldest first."""
    notes: list[str] = field(default_factory=list)
    """What the launcher has noticed in a run that did not fail for it."""
    log_folder: Path | None = None
    """Where the output is kept, rank by rank, if it is too long to be shown."""

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
        from ddp_lab.kit.cell import display

        return display.summary(self)


class RunFailed(Exception):
    """A run failed, or succeeded although it was expected to fail; see `.run`."""

    def __init__(self, message: str, run: Run | None):
        super().__init__(message)
        self.run = run

    def _render_traceback_(self) -> list[str]:
        """Show the cause in a notebook, not the launcher's own frames."""
        return [f"RunFailed: {self}"]


class RunInterrupted(KeyboardInterrupt):
    """The stop button ended a run; `.run` tells where each rank stood."""

    def __init__(self, run: Run):
        super().__init__(f"{run.failure.report()}\n\n$ {run.command}")
        self.run = run

    def _render_traceback_(self) -> list[str]:
        return [f"RunInterrupted: {self}"]


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
        timeout: seconds without a sign of life (output of any rank, or a completed call
            of the communication library) after which every process of the run is
            ended. Until the first, it is at least `START_UP`.
        expect_failure: return a run that fails, and raise if it succeeds.
        cold: import torch anew in every process, as a terminal does (see warm.py).
        watch: called with the result so far, five times a second.

    Raises:
        RunFailed: says the root cause first; `.run` holds the rest.
        RunInterrupted: if Ctrl-C or the stop button ended the run.
    """
    argv = shlex.split(command) if isinstance(command, str) else list(command)
    if not any(OWN_RENDEZVOUS.match(argument) for argument in argv):
        argv.insert(0, "--standalone")
    job = _Job(shlex.join(["torchrun", *argv]), logs.TorchrunLog)
    module = ["-m", "torch.distributed.run", "--redirects", "3"]
    words = [*module, "--log-dir", str(job.folder), *argv]
    return _judged(job.run(words, timeout, cold, watch), expect_failure)


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
    job = _Job(shlex.join(["python", *argv]), logs.SpawnLog)
    return _judged(job.run(argv, timeout, cold, watch), expect_failure)


def _judged(run: Run, expect_failure: bool) -> Run:
    """Return `run`, or raise if it ended in another way than expected."""
    if run.failure and run.failure.kind == "interrupt":
        raise RunInterrupted(run)
    if expect_failure and run.failure is None:
        raise RunFailed(f"the run succeeded, but was to fail\n\n$ {run.command}", run)
    if run.failure and not expect_failure:
        raise RunFailed(f"{run.failure.report()}\n\n$ {run.command}", run)
    return run


def environment() -> dict[str, str]:
    """Return the environment in which every run begins."""
    env = {name: value for name, value in os.environ.items() if name not in DROPPED}
    env |= {"TERM": "dumb", "PYTHONFAULTHANDLER": "1"}
    env.setdefault("OMP_NUM_THREADS", "1")  # torchrun does so too, and prints a banner
    return env


def _end(child: subprocess.Popen) -> int:
    """Let the guard end the run; return the exit code. Impatience makes it hurry."""
    child.stdin.close()
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()


class _Job:
    """One run: its files in `folder`, and its processes under a guard."""

    def __init__(self, command: str, log: type[logs.RunLog]):
        self.command = command
        self.log = log  # how the ranks' output is told apart
        self.mark = uuid.uuid4().hex
        self.start = time.monotonic()
        self.notes: list[str] = []
        self.standing: list[logs.RankLog] = []  # the ranks just before we ended them
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="ddp_lab-"))
        except OSError as error:
            where = f"the lab cannot keep its logs in {tempfile.gettempdir()}"
            raise RunFailed(f"{where}: {error.strerror}", None) from None

    def run(self, argv: list[str], timeout, cold, watch) -> Run:
        """Run `python ARGV` until it ends or is stopped; return what became of it."""
        child = code = stopped = None
        try:
            try:
                child = self._start(argv, cold)
                stopped = self._wait(child, timeout, watch)
            except KeyboardInterrupt:
                stopped = "interrupt"
            if stopped and child:
                self._look(last=True)
                self.standing = self.log.read(self.folder).ranks
        except KeyboardInterrupt:  # once more: ask no rank, end it
            child.terminate()
        finally:
            if child:  # however we leave, the guard ends every process of the run
                code = _end(child)
        try:
            limit = MOST if stopped == "output" else timeout
            run = self._result(code or 0, stopped, limit)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        if watch:
            watch(run)
        return run

    def _start(self, argv: list[str], cold: bool) -> subprocess.Popen:
        env = environment()
        warm = None if cold else WARM.python(env)
        if not cold and WARM.trouble and WARM.trouble not in TOLD:
            TOLD.add(WARM.trouble)
            self.notes.append(f"no warm start, but a plain one: {WARM.trouble}")
        # What torchrun starts its workers with: a documented hook.
        env["PYTHON_EXEC"] = warm or write_python(self.folder, "-")
        python = warm or sys.executable
        folder = str(self.folder)
        command = [sys.executable, "-IS", guard.__file__]
        command += [self.mark, folder, python, *argv]
        out, err = self.folder / "out", self.folder / "err"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=env,
                start_new_session=True,  # the stop button is for the caller alone
            )

    def _wait(self, child, timeout: float, watch) -> str | None:
        """Wait until the run ends; return why it has to be stopped, if it has to."""
        size, changed, done, looked, failing = 0, self.start, None, False, False
        while child.poll() is None:
            now, written = time.monotonic(), self._written()
            if written != size:
                size, changed, looked = written, now, False
            if written > MOST:
                return "output"
            patience = timeout if size else max(timeout, START_UP)
            # Two looks tell whether the ranks get on although they say nothing.
            if now - changed > patience / 2 and not looked:
                done, looked = self._look(), True
            if now - changed > patience:
                if self._look() == done:
                    return "timeout"
                changed, looked = now, False
            if not failing and self._one_has_failed():
                failing = True
                self._look()  # at the others, before torchrun ends them
            if watch:
                watch(self._result())
            while child.poll() is None and time.monotonic() < now + 0.2:
                time.sleep(0.01)
        return None

    def _written(self) -> int:
        # The end of a rank is a sign of life, too: torchrun may be slow to follow.
        found = [p for n in ("*.log", "end.json") for p in self.folder.rglob(n)]
        files = [*found, self.folder / "out", self.folder / "err"]
        return sum(file.stat().st_size for file in files)

    def _one_has_failed(self) -> bool:
        ends = [logs.read_json(f / "end.json") for f in logs.rank_folders(self.folder)]
        return any(end and end["code"] for end in ends)

    def _look(self, last: bool = False) -> int:
        """See where the ranks stand; return how many calls they have completed."""
        if self.log is logs.SpawnLog:
            family = guard.marked(self.mark)
            probe.look_at_family(self.folder, family)
            if last and not list(self.folder.glob("stack_*.json")):
                probe.abort(family)
            return 0
        probe.look(self.folder)
        return probe.progress(self.folder)

    def _result(self, code=None, stopped=None, limit=0.0) -> Run:
        """Return the result so far; it is final once the exit code is known."""
        seconds, final = time.monotonic() - self.start, code is not None
        log = self._read(final)
        failure, exit_codes = None, [code for _ in log.ranks]
        if final:
            failure, exit_codes = find_failure(log, code, stopped, limit)
        return Run(
            command=self.command,
            lines=[rank.lines for rank in log.ranks],
            facts=[rank.facts for rank in log.ranks],
            warnings=[rank.warnings for rank in log.ranks],
            exit_codes=exit_codes,
            seconds=seconds,
            failure=failure,
            calls=[rank.calls for rank in log.ranks],
            notes=self.notes + (find_notes(log.ranks) if final and not failure else []),
            log_folder=self._keep() if final else None,
        )

    def _read(self, final: bool) -> logs.RunLog:
        """Return what the run printed, and in the end what else is known of it."""
        if not final:
            return self.log.read_output(self.folder, SHORT)
        log = self.log.read(self.folder)
        for rank, before in enumerate(self.standing):
            log.ranks[rank] = log.ranks[rank].as_it_stood(before)
        return log

    def _keep(self) -> Path | None:
        """Move output that is too long to be shown to build/logs; return its folder."""
        files = {"out": self.folder / "out", "err": self.folder / "err"}
        for rank in logs.rank_folders(self.folder):
            files[f"rank_{rank.name}.out"] = rank / "stdout.log"
            files[f"rank_{rank.name}.err"] = rank / "stderr.log"
        files = {name: path for name, path in files.items() if path.exists()}
        if not KEPT or all(path.stat().st_size <= SHORT for path in files.values()):
            return None
        kept = ROOT / "build" / "logs"
        program = re.search(r"([\w.-]+)\.py\b", self.command)
        kept.mkdir(parents=True, exist_ok=True)
        for old in sorted(kept.iterdir(), key=os.path.getmtime)[: 1 - KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        prefix = f"{program[1] if program else 'run'}-"
        kept = Path(tempfile.mkdtemp(prefix=prefix, dir=kept))
        for name, path in files.items():
            if path.stat().st_size:
                shutil.move(path, kept / name)
        return kept

"""One run: its folder of files, its processes under a guard, and how it went."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.explain.failure import Failure, find_failure, find_notes
from ddp_lab.kit.explain.logs import (
    RankLog,
    RunLog,
    SpawnLog,
    TorchrunLog,
    rank_folders,
    read_json,
)
from ddp_lab.kit.run import guard, machine, probe
from ddp_lab.kit.run.limits import SHORT, Limits
from ddp_lab.kit.run.result import Run, RunFailed
from ddp_lab.kit.run.warm import WARM, write_python

Watch = Callable[[Run], None]
"""Called with the result so far, five times a second."""

KEPT_LOGS = ROOT / "build" / "logs"
# The kernel's own settings, which would change how a program prints or draws.
COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR")
DROPPED = ("MPLBACKEND", "PYTHONUNBUFFERED", *COLOURS)


def environment() -> dict[str, str]:
    """Return the environment in which every run begins."""
    env = {name: value for name, value in os.environ.items() if name not in DROPPED}
    env |= {"TERM": "dumb", "PYTHONFAULTHANDLER": "1"}
    env.setdefault("OMP_NUM_THREADS", "1")  # torchrun does so too, and prints a banner
    return env


@dataclass(frozen=True)
class Kind:
    """What starts the ranks: how they are looked at, and how their logs are read."""

    log: type[RunLog]
    look: Callable[[Path, str, bool], int]
    """Given the folder, the mark and whether it is the last look: leave where the ranks
    stand in the folder, and return how many calls they have completed."""


TORCHRUN = Kind(TorchrunLog, probe.look_at_ranks)
SPAWN = Kind(SpawnLog, probe.look_at_family)


class Job:
    """One run of a command.

    Args:
        command: the plain command, as a terminal would take it.
        kind: what starts the ranks, `TORCHRUN` or `SPAWN`.
        limits: what the run may take.
    """

    def __init__(self, command: str, kind: Kind, limits: Limits):
        self.command = command
        self.kind = kind
        self.limits = limits
        self.stopped: str | None = None
        """Why the run was ended, if it did not end by itself: a key of `STOPPED`."""
        self.mark = uuid.uuid4().hex
        self.start = time.monotonic()
        self.notes: list[str] = []
        self.standing: list[RankLog] = []  # the ranks just before we ended them
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="ddp_lab-"))
        except OSError as error:
            where = f"the lab cannot keep its logs in {tempfile.gettempdir()}"
            raise RunFailed(f"{where}: {error.strerror}", None) from None

    def run(self, argv: Sequence[str], cold: bool, watch: Watch | None) -> Run:
        """Run `python ARGV` until it ends or is stopped; return what became of it."""
        child, code = None, 0
        try:
            try:
                child = self._start(argv, cold)
                self.stopped = self._wait(child, watch)
            except KeyboardInterrupt:
                self.stopped = "interrupt"
            if self.stopped and child:
                self._look(last=True)
                self.standing = self.kind.log.read(self.folder).ranks
        except KeyboardInterrupt:  # once more: ask no rank, end it
            if child:
                child.terminate()
        finally:
            if child:  # however we leave, the guard ends every process of the run
                code = _end(child)
        limits = self.limits
        limit = limits.output if self.stopped == "output" else limits.silence
        try:
            run = self._result(code, self.stopped, limit)
            run = replace(run, failure=_with_holder(run.failure))
            if watch:
                watch(run)  # who follows the files reads them to their ends
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return run

    def _start(self, argv: Sequence[str], cold: bool) -> subprocess.Popen[bytes]:
        env = environment()
        warm = None if cold else WARM.python(env)
        if not cold and (trouble := WARM.untold_trouble()):
            self.notes.append(f"not a warm start: {trouble}")
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

    def _wait(self, child: subprocess.Popen[bytes], watch: Watch | None) -> str | None:
        """Wait until the run ends; return why it has to be stopped, if it has to."""
        size, changed, done, looked, failing = 0, self.start, None, False, False
        silence = self.limits.silence
        while child.poll() is None:
            now, written = time.monotonic(), self._written()
            if written != size:
                size, changed, looked = written, now, False
            if written > self.limits.output:
                return "output"
            patience = silence if size else max(silence, self.limits.first_sign)
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
        ends = [read_json(f / "end.json") for f in rank_folders(self.folder)]
        return any(end and end["code"] for end in ends)

    def _look(self, last: bool = False) -> int:
        return self.kind.look(self.folder, self.mark, last)

    def _result(
        self, code: int | None = None, stopped: str | None = None, limit: float = 0.0
    ) -> Run:
        """Return the result so far; it is final once the exit code is known."""
        seconds, final = time.monotonic() - self.start, code is not None
        log = self._read(final)
        failure, exit_codes = None, [code for _ in log.ranks]
        if code is not None:
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
            log_folder=self._keep() if final else self.folder,
            code=code,
        )

    def _read(self, final: bool) -> RunLog:
        """Return what the run printed, and in the end what else is known of it."""
        if not final:
            return self.kind.log.read_output(self.folder, SHORT)
        log = self.kind.log.read(self.folder)
        for rank, before in enumerate(self.standing):
            log.ranks[rank] = log.ranks[rank].as_it_stood(before)
        return log

    def _keep(self) -> Path | None:
        """Move output that is too long to be shown to build/logs; return its folder."""
        files = {"out": self.folder / "out", "err": self.folder / "err"}
        for rank in rank_folders(self.folder):
            files[f"rank_{rank.name}.out"] = rank / "stdout.log"
            files[f"rank_{rank.name}.err"] = rank / "stderr.log"
        sizes = {name: p.stat().st_size for name, p in files.items() if p.exists()}
        most = self.limits.kept_runs
        if not most or all(size <= SHORT for size in sizes.values()):
            return None
        KEPT_LOGS.mkdir(parents=True, exist_ok=True)
        for old in _newest_first(KEPT_LOGS)[most - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
        program = re.search(r"([\w.-]+)\.py\b", self.command)
        prefix = f"{program[1] if program else 'run'}-"
        kept = Path(tempfile.mkdtemp(prefix=prefix, dir=KEPT_LOGS))
        for name, size in sizes.items():
            if size:
                shutil.move(files[name], kept / name)
        return kept


def _newest_first(folder: Path) -> list[Path]:
    """Return what is in `folder`; another launch may be removing some of it."""
    ages = {}
    for path in folder.iterdir():
        try:
            ages[path] = path.stat().st_mtime
        except FileNotFoundError:
            continue
    return sorted(ages, key=ages.__getitem__, reverse=True)


def _end(child: subprocess.Popen[bytes]) -> int:
    """Let the guard end the run; return the exit code. Impatience makes it hurry."""
    assert child.stdin
    child.stdin.close()
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()


def _with_holder(failure: Failure | None) -> Failure | None:
    """Add to a failure for want of a port or of a GPU's memory who holds it now."""
    if failure is None or failure.symptom is None:
        return failure
    held = machine.holder(failure.symptom, failure.cause)
    return replace(failure, means=f"{failure.means}; {held}") if held else failure

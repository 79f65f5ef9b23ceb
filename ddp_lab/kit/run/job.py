"""One run: its folder of files, its processes under a guard, and how it went."""

import json
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddp_lab import ROOT
from ddp_lab.kit import say
from ddp_lab.kit.explain.failure import Failure, find_failure, find_notes
from ddp_lab.kit.explain.symptoms import find
from ddp_lab.kit.record.lives import events as read_events
from ddp_lab.kit.record.lives import lives as read_lives
from ddp_lab.kit.record.lives import nodes_by_rank
from ddp_lab.kit.record.logs import (
    RankLog,
    RunLog,
    TorchrunLog,
    folders_by_attempt,
    rank_folders,
    read_json,
)
from ddp_lab.kit.record.spawned import SpawnLog
from ddp_lab.kit.record.words import signal_name
from ddp_lab.kit.run import machine, probe
from ddp_lab.kit.run.guarded import Guarded
from ddp_lab.kit.run.kept import keep
from ddp_lab.kit.run.limits import SHORT, Limits
from ddp_lab.kit.run.owned import Owned
from ddp_lab.kit.run.plan import Plan
from ddp_lab.kit.run.rank import HOME
from ddp_lab.kit.run.result import Run, RunFailed
from ddp_lab.kit.run.signs import Signs
from ddp_lab.kit.run.warm import READY_WAIT, WARM, Tell, Warm, write_python
from ddp_lab.kit.slurm.sent import CLUSTER, Sent, clean

Watch = Callable[[Run], None]
"""Called with the result so far, five times a second."""

UNPLAYED: dict[str, Any] = {"how": "", "typed": [], "left_out": []}  # see nodes.py
RANK = Path(__file__).with_name("rank.py")
NODES = Path(__file__).parents[1] / "played" / "nodes.py"
KEPT_LOGS = ROOT / "build" / "logs"
OVERDUE = "torchrun had not ended long after its ranks, and was ended"
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
        sent: how it is sent to SLURM, if it is.
    """

    def __init__(
        self, command: str, kind: Kind, limits: Limits, sent: Sent | None = None
    ):
        self.command = command
        self.kind = kind
        if sent:  # a node may have to import torch first, which here is waited for
            limits = replace(limits, first_sign=limits.first_sign + READY_WAIT)
        self.limits = limits
        self.sent = sent
        self.stopped: str | None = None
        """Why the run was ended, if it did not end by itself: a key of `STOPPED`."""
        self.limit: float | str = limits.silence
        """What `STOPPED` tells beside it: a limit, or a signal."""
        self.options: list[str] = []
        """Python's own, for a cold start of a program that starts its ranks itself."""
        self.warm: str | None = None
        """What is run instead of Python, in a warm start."""
        self.server: Warm = WARM
        """Who forks it, in a warm start."""
        self.plan: Plan | None = None
        """What each node runs, if this machine plays several."""
        self.meets: dict | None = None
        """How the others are to be found, if the command is that of one node."""
        self.mark = uuid.uuid4().hex
        self.start, self.began = time.monotonic(), time.time()
        self.notes: list[str] = []
        self.standing: RunLog | None = None  # all just before we ended it
        self.seen = 0, 0
        """How many attempts, and how many ranks of the last one have left logs."""
        self.ended = 0.0  # when we were interrupted, or the guard ended what was left
        self.started = False
        self.owned: Owned | None = None
        if sent:  # there once the machines are, for which we may wait long
            self.folder = sent.folder(self.mark)
            return
        try:
            self.owned = Owned()
            self.folder = self.owned.path
        except OSError as error:
            where = f"the lab cannot keep its logs in {tempfile.gettempdir()}"
            raise RunFailed(f"{where}: {error.strerror}", None) from None

    def run(self, argv: Sequence[str], cold: bool, watch: Watch | None) -> Run:
        """Run `python ARGV` until it ends or is stopped; return what became of it."""
        try:
            run = self._run(argv, cold, watch)
            run = replace(run, failure=_with_holder(run.failure))
            if watch:
                watch(run)  # who follows the files reads them to their ends
            return run
        except BrokenPipeError:  # nobody reads any more what `watch` prints
            raise
        except OSError as error:  # too many open files, say
            symptom = find(str(error))
            means = f"\n  that is: {symptom.means}" if symptom else ""
            raise RunFailed(f"the launcher: {error}{means}", None) from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.owned:
                self.owned.remove()

    def _run(self, argv: Sequence[str], cold: bool, watch: Watch | None) -> Run:
        child, code = None, 0
        try:
            try:
                child = self._start(argv, cold, watch)
                self.started = True
                self._wait(child, watch)
            except KeyboardInterrupt:
                self.stopped, self.ended = "interrupt", time.time()
            if self.stopped and child:
                self._look(last=True)
                self.standing = self.kind.log.read(self.folder)
        except KeyboardInterrupt:  # once more: ask no rank, end it
            if child:
                child.hurry()
        finally:
            if child:  # however we leave, every process of the run is ended
                code = child.end()
                self.ended = self.ended or child.since
                if self.sent:
                    self.sent.end(stopped=bool(self.stopped) or code < 0)
        return self._result(self._judged(code))

    def _start(self, argv: Sequence[str], cold: bool, watch: Watch | None) -> Guarded:
        env, tell = environment(), self._teller(watch)
        tell("")  # now, because any of what follows may take long
        if self.sent:
            self.sent.allocate(tell)
            self.start, self.began = time.monotonic(), time.time()  # not in the queue
            self.folder.mkdir(parents=True)
            words = self.sent.command(self.folder, "" if cold else CLUSTER.warm(env))
            env = clean(env)
            return Guarded(words, self.mark, self.folder, env)
        warm = self.warm = None if cold else self.server.python(env, tell)
        self.start, self.began = time.monotonic(), time.time()  # not in the imports
        if not cold and (trouble := self.server.untold_trouble()):
            self.notes.append(f"not a warm start: {trouble}")
        # What torchrun starts its workers with: a documented hook.
        env["PYTHON_EXEC"] = warm or write_python(self.folder, "-")
        command = [warm or sys.executable]
        if self.plan:
            return Guarded(self._played(command), self.mark, self.folder, env)
        if self.meets:
            self._leave_plan({"meets": [self.meets]})
        if self.kind is SPAWN:
            env[HOME] = str(self.folder)
            command += [] if warm else [*self.options, "-u", str(RANK)]
        return Guarded([*command, *argv], self.mark, self.folder, env)

    def _teller(self, watch: Watch | None) -> Tell:
        """Return what shows a reader what is done before the program starts."""

        def tell(said: str) -> None:
            if watch:
                watch(replace(self._result(), state=said))

        return tell

    def _played(self, python: list[str]) -> list[str]:
        """Return the command that plays the nodes, instead of one torchrun."""
        assert self.plan
        self._leave_plan(self.plan.as_json() | {"python": python})
        return [sys.executable, "-IS", str(NODES), str(self.folder)]

    def _leave_plan(self, plan: dict) -> None:
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def _wait(self, child: Guarded, watch: Watch | None) -> None:
        """Wait until the run ends, or has to be stopped."""
        size, changed, done, looked, failing = 0, self.start, None, False, False
        silence, slow = self.limits.silence, self.limits.first_sign
        signs = Signs(self.folder)
        if self.warm and (self.plan or self.meets):
            # Nobody imports torch any more: if nobody begins, a node has not come.
            slow, changed = silence, time.monotonic()
        while child.runs():
            now, (written, alive) = time.monotonic(), signs.count()
            if alive != size:
                size, changed, looked = alive, now, False
            if written > self.limits.output:
                return self._stop("output", self.limits.output)
            patience = silence if size else max(silence, slow)
            # Two looks tell whether the ranks get on although they say nothing.
            if now - changed > patience / 2 and not looked:
                done, looked = self._look(), True
            if now - changed > patience:
                if self._left_alone():  # on a busy machine torchrun is slow to follow
                    if now - changed > max(patience, slow):
                        self.notes.append(OVERDUE)
                        return None
                elif self._look() == done:
                    return self._stop("timeout", silence)
                else:
                    changed, looked = now, False
            if not failing and self._one_has_failed():
                failing = True
                self._look()  # at the others, before torchrun ends them
            attempts = folders_by_attempt(self.folder) or [[]]
            self.seen = max(self.seen, (len(attempts), len(attempts[-1])))
            if watch:
                watch(self._result())
            while child.runs() and time.monotonic() < now + 0.2:
                time.sleep(0.01)
        if ended_by := child.lost():
            self._stop("guard", ended_by)

    def _stop(self, why: str, limit: float | str) -> None:
        """Say why the run has not ended by itself: a key of `STOPPED`, its argument."""
        self.stopped, self.limit = why, limit

    def _judged(self, code: int) -> int:
        """Return the exit code that counts, once all have ended.

        Say it if a signal has ended what the ranks depend on.
        """
        if OVERDUE in self.notes:
            return int(any(self._exit_codes()))
        if code and not self.stopped:
            if self.warm and (by := self.server.lost(self.warm)):
                self._stop("warm", by)
            elif self.sent and (why := self.sent.ended_by_slurm(self.folder)):
                self._stop("slurm", why)
            elif code < 0 and self.kind is TORCHRUN:
                what = "srun" if self.sent else "nodes" if self.plan else "torchrun"
                self._stop(what, signal_name(-code))
        return code

    def _exit_codes(self) -> list[int | None]:
        """Return how each rank has ended; None for one that has not."""
        ends = [read_json(rank / "exit.json") for rank in rank_folders(self.folder)]
        return [end["code"] if end else None for end in ends]

    def _left_alone(self) -> bool:
        """Tell whether all ranks have ended, and only torchrun is still there.

        If they can begin again, and have not all done their work, it waits for others.
        """
        ends = [read_json(rank / "exit.json") for rank in rank_folders(self.folder)]
        if not ends or any(end is None or end["code"] is None for end in ends):
            return False
        plan = read_json(self.folder / "plan.json") or {}
        again = not plan.get("fixed", True)
        return not (again and any(end["code"] or end["asked"] for end in ends))

    def _one_has_failed(self) -> bool:
        ends = [read_json(f / "end.json") for f in rank_folders(self.folder)]
        return any(end and end["code"] for end in ends)

    def _look(self, last: bool = False) -> int:
        look = self.sent.look if self.sent else self.kind.look
        return look(self.folder, self.mark, last)

    def _result(self, code: int | None = None) -> Run:
        """Return the result so far; it is final once the exit code is known."""
        seconds, final = time.monotonic() - self.start, code is not None
        log = self._read(final)
        failure, exit_codes, kept = None, [code for _ in log.ranks], None
        notes = list(self.notes)
        if code is not None:
            failure, exit_codes = find_failure(log, code, self.stopped, self.limit)
            notes += self._lost()
            notes += [] if failure else [say.cause(each) for each in find_notes(log)]
            kept, trouble = self._keep()
            notes += [trouble] if trouble else []
        lives = read_lives(self.folder, self.began) if final else []
        happened = read_events(self.folder, self.began)
        how = read_json(self.folder / "played.json") or UNPLAYED
        if how["left_out"]:
            said = ", ".join(how["left_out"])
            notes.append(f"left out, because the nodes share one network: {said}")
        if final and self.plan and not self.stopped:
            done = [what for _, what in happened] + how["left_out"]
            notes += _not_happened(self.plan.events, done)
        return Run(
            command=self.command,
            lines=[rank.lines for rank in log.ranks],
            facts=[rank.facts for rank in log.ranks],
            warnings=log.warnings(failed=failure is not None),
            exit_codes=exit_codes,
            seconds=seconds,
            failure=failure,
            calls=[rank.calls for rank in log.ranks],
            notes=notes,
            log_folder=kept if final else self.folder,
            code=code,
            nodes=nodes_by_rank(lives),
            lives=lives,
            events=happened,
            traffic=read_json(self.folder / "traffic.json") or [],
            played=how["how"],
            typed=how["typed"],
        )

    def _read(self, final: bool) -> RunLog:
        """Return what the run printed, and in the end what else is known of it."""
        if not final:
            return self.kind.log.read_output(self.folder, SHORT)
        log = self.kind.log.read(self.folder)
        # A rank may have removed them all; the launcher has counted them before.
        log.ranks.extend(RankLog() for _ in range(self.seen[1] - len(log.ranks)))
        if self.standing:
            log.agents[:] = self.standing.agents
            for rank, before in enumerate(self.standing.ranks):
                log.ranks[rank] = log.ranks[rank].as_it_stood(before)
        for end in (rank.exit for rank in log.ranks if rank.exit):
            if self.ended and end["time"] >= self.ended:  # by the guard
                end["asked"] = min(end["asked"] or self.ended, self.ended)
        return log

    def _lost(self) -> list[str]:
        """Return whose output is lost, because a program has removed it."""
        if not self.started:
            return []
        folders = enumerate(rank_folders(self.folder))
        there = [rank for rank, path in folders if (path / "stdout.log").exists()]
        lost = [rank for rank in range(self.seen[1]) if rank not in there]
        if not lost and (self.folder / "out").exists():
            return []
        whose = f"of {say.ranks(lost)}" if lost else "of this run"
        removed = "were removed meanwhile; what was printed is lost"
        return [f"the log files {whose} {removed}"]

    def _keep(self) -> tuple[Path | None, str]:
        """Keep output that is too long to be shown; see `keep`."""
        files = {"out": self.folder / "out", "err": self.folder / "err"}
        for rank, path in enumerate(rank_folders(self.folder)):
            files[f"rank_{rank}.out"] = path / "stdout.log"
            files[f"rank_{rank}.err"] = path / "stderr.log"
        sizes = {name: p.stat().st_size for name, p in files.items() if p.is_file()}
        most = self.limits.kept_runs
        if not most or all(size <= SHORT for size in sizes.values()):
            return None, ""
        program = re.search(r"([\w.-]+)\.py\b", self.command)
        prefix = f"{program[1] if program else 'run'}-"
        long = {name: files[name] for name, size in sizes.items() if size}
        return keep(long, prefix, most, KEPT_LOGS)


def _not_happened(sentences: Sequence[str], done: list[str]) -> list[str]:
    """Return a note for each event to which the run has not come."""
    notes = []
    for sentence in sentences:
        what = sentence.rpartition(":")[2].strip()
        if what in done:
            done.remove(what)
        else:
            notes.append(f"the run was over before this event: {sentence}")
    return notes


def _with_holder(failure: Failure | None) -> Failure | None:
    """Add to a failure for want of a port or of a GPU's memory who holds it now."""
    if failure is None or failure.symptom is None:
        return failure
    held = machine.holder(failure.symptom, failure.cause)
    return failure.held_by(held) if held else failure

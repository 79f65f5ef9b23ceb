"""Read what a run wrote: lines, facts, warnings, tracebacks, and where its ranks stood.

`TorchrunLog` is the log of a torchrun; that of a program that starts its ranks itself
is in spawned.py. They differ in where it is written which rank did what.
"""

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_lab.kit.explain import stacks
from ddp_lab.kit.explain.calls import Call, from_flight

MOST_READ = 1_000_000  # bytes, from either end of a file
# Colours and other control sequences, then whatever else a page cannot show.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
# Printed by every healthy run; whatever else appears on stderr is for the reader.
NOISE = re.compile(r"OMP_NUM_THREADS|^\*+$|^\[Gloo\] Rank|^\s*$")
# torch puts "[rank1]: " in front of every line of an uncaught exception.
TRACEBACK_PREFIX = re.compile(r"^\[rank\d+\]:[ ]?", re.MULTILINE)
TRACEBACK = re.compile(
    r"^(Traceback \(most recent call last\):|Fatal Python error: |  File .*, line)",
    re.MULTILINE,
)

# torchrun's own report of the ranks that have failed.
EXIT_CODE = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
PROGRAM = "the program itself"


@dataclass
class RankLog:
    """What one rank wrote."""

    lines: list[str] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    traceback: str = ""
    time: float = 0.0
    """When the traceback was written, in seconds since the epoch."""
    stack: list[stacks.Frame] = field(default_factory=list)
    """Where it stood when it was last seen."""
    beside: dict[str, list[stacks.Frame]] = field(default_factory=dict)
    """Where its other threads stood, and the processes that it had started; and beside
    rank 0 the `PROGRAM`, if that is another process."""
    stopped: bool = False
    """Whether it was halted, say by SIGSTOP."""
    calls: list[Call] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    """The ranks of each process group."""
    end: dict | None = None
    """What the rank left when it had done everything; see rank.py."""
    raised: dict | None = None
    """The exception that ended its main part, as text, and when; see rank.py."""
    exit: dict | None = None
    """How it ended, when, and whether it had been asked to; see proxy.py."""
    code: int | None = None
    """The exit code, negative for a signal; None if it did not end by itself."""

    @property
    def finished(self) -> bool:
        """Whether the rank has done everything, and without an error."""
        return self.end is not None and self.end["code"] == 0

    def add_line(self, line: str) -> None:
        """Keep a line of stdout: a JSON object is a fact, anything else a line."""
        if line.startswith("{") and line.endswith("}"):
            try:
                self.facts.update(json.loads(line))
                return
            except ValueError:
                pass
        if not NOISE.search(line):
            self.lines.append(line)

    def add_stderr(self, text: str) -> None:
        """Keep stderr: from the first traceback on it is the traceback."""
        text = TRACEBACK_PREFIX.sub("", text)
        found = TRACEBACK.search(text)
        warnings, self.traceback = text, ""
        if found:
            warnings, self.traceback = text[: found.start()], text[found.start() :]
            self.traceback = stacks.tidy(clip(self.traceback))
        self.warnings = [
            line for line in warnings.splitlines() if not NOISE.search(line)
        ]

    def add_seen(self, seen: dict | None) -> None:
        """Keep what was seen of the rank from outside, beside its main thread."""
        for each in seen["beside"] if seen else []:
            self.beside[each["name"]] = stacks.from_json(each["stack"])
        self.stopped = bool(seen and seen["stopped"])

    def as_it_stood(self, before: "RankLog") -> "RankLog":
        """Return this log without what the rank did because it was ended.

        Ranks end one after the other, and the last ones complain of lost connections.

        Args:
            before: the same rank's log, read just before it was ended.
        """
        return replace(
            self,
            stack=before.stack or self.stack,
            beside=before.beside,
            stopped=before.stopped,
            calls=before.calls,
            groups=before.groups,
            end=before.end,
            raised=before.raised,
            exit=before.exit,
            code=before.code,
            traceback=before.traceback,
        )


@dataclass(frozen=True)
class RunLog(ABC):
    """What a run wrote: its ranks, and the command that started them."""

    ranks: list[RankLog]
    stderr: str = ""
    """Of the command itself: torchrun's, or the program's own."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> "RunLog":
        """Return all that is known of the run with this log folder."""

    @classmethod
    @abstractmethod
    def read_output(cls, folder: Path, limit: int = MOST_READ) -> "RunLog":
        """Return what its ranks have printed so far; of a long output the two ends."""

    def failed(self, code: int) -> bool:
        """Tell whether a run that ended with this exit code has failed."""
        return code != 0

    def culprit(self, first: int | None) -> int | None:
        """Return the rank to blame, if rank `first` was the first to complain."""
        return first

    def notes(self) -> list[str]:
        """Return what is odd about the processes of a run that succeeds."""
        return []


@dataclass(frozen=True)
class TorchrunLog(RunLog):
    """The log of a torchrun: each rank has a folder of its own (see rank.py)."""

    @classmethod
    def read(cls, folder: Path) -> "TorchrunLog":
        run = cls([], read(folder / "err"))
        codes = {int(rank): int(code) for rank, code in EXIT_CODE.findall(run.stderr)}
        for rank, its_folder in enumerate(rank_folders(folder)):
            log = _read_rank(its_folder, MOST_READ)
            run.ranks.append(log)
            _add_evidence(log, its_folder)
            log.code = codes.get(rank)
            if codes and rank not in codes and log.end is None:
                # torchrun lists whoever failed, so this one left, say by os._exit(0).
                log.end = {"code": 0, "left_group": False}
            if log.end:
                log.code = log.end["code"]
        return run

    @classmethod
    def read_output(cls, folder: Path, limit: int = MOST_READ) -> "TorchrunLog":
        ranks = [_read_rank(rank, limit) for rank in rank_folders(folder)]
        return cls(ranks, read(folder / "err", limit))


def clip(text: str, most: int = 20_000) -> str:
    """Return `text`; if it is longer than `most`, its two ends."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... left out ...\n{text[-most // 2 :]}"


def rank_folders(folder: Path) -> list[Path]:
    """Return the folders of the ranks' logs in the last attempt, by rank."""
    attempts = sorted(folder.glob("*/attempt_*"), key=lambda path: path.name)
    if not attempts:
        return []
    return sorted(attempts[-1].iterdir(), key=lambda path: int(path.name))


def _read_rank(folder: Path, limit: int) -> RankLog:
    """Return what the rank with this log folder printed."""
    log = RankLog()
    for line in read(folder / "stdout.log", limit).split("\n"):
        log.add_line(line)
    log.add_stderr(read(folder / "stderr.log", limit))
    report = folder / "error.json"  # written by @record
    if report.exists():
        log.time = report.stat().st_mtime
        log.traceback = clip(_callstack(report)) or log.traceback
    return log


def _add_evidence(log: RankLog, folder: Path) -> None:
    """Add what the rank left beside its output; see rank.py."""
    log.end = read_json(folder / "end.json")
    log.raised = read_json(folder / "raised.json")
    log.exit = read_json(folder / "exit.json")
    log.add_seen(read_json(folder / "seen.json"))
    flight = read_json(folder / "flight.json") or {}
    log.calls, log.groups = from_flight(flight), flight.get("groups", {})
    seen = stacks.from_json(read_json(folder / "stack.json"))
    said = stacks.from_text(log.traceback)
    raised = log.end or (folder / "error.json").exists()
    # What SIGTERM made it write is the last resort: it shows no variables.
    log.stack = (said if raised else seen) or said or seen
    log.stack = log.stack or stacks.from_text(read(folder / "stack"))


def read_json(path: Path) -> Any:
    """Return what the JSON file at `path` holds; None if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None  # missing, or half-written because the rank was ended just then


def _callstack(report: Path) -> str:
    try:
        return read_json(report)["message"]["extraInfo"]["py_callstack"]
    except (KeyError, TypeError):
        return ""


def read(path: Path, limit: int = MOST_READ) -> str:
    """Return the text of `path`; of a long one the two ends, `limit` bytes each."""
    try:
        with open(path, "rb") as file:
            data = file.read(2 * limit + 1)
            if len(data) > 2 * limit:
                size = file.seek(0, 2)
                file.seek(size - limit)
                gap = f"\n... {size - 2 * limit:,} bytes left out ...\n".encode()
                data = data[:limit] + gap + file.read(limit)
    except FileNotFoundError:
        return ""
    lines = data.decode("utf-8", errors="replace").split("\n")
    # Of a progress bar, which draws over itself, the last state counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return CONTROL.sub("", "\n".join(lines))

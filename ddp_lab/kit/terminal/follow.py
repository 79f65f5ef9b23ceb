"""`ddp-lab torchrun` and `ddp-lab python`: a run as in a cell, shown as it comes."""

import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ddp_lab.kit import launch
from ddp_lab.kit.record import names
from ddp_lab.kit.record.files import read_json
from ddp_lab.kit.record.logs import folders_by_attempt, rank_folders
from ddp_lab.kit.run.limits import Limits
from ddp_lab.kit.run.result import Run, RunFailed, RunInterrupted

# A program of one's own may train, and print, for as long as it likes.
NO_LIMITS = Limits(silence=math.inf, output=sys.maxsize, keep=False)
LAUNCHERS = {"torchrun": launch.torchrun, "python": launch.python}
INTERRUPTED, TIMED_OUT = 130, 124  # as a shell, and timeout(1), say it
# What is told of a failure, for a program to read.
TOLD: tuple[str, ...] = ("kind", "rank", "node", "cause", "where", "line", "symptom")
TOLD += ("means", "traceback", "others", "earlier", "places")
PROGRESS = 10.0  # seconds between two states of a progress bar
# The ranks' colors in a terminal, which brings its own light or dark background.
COLORS = (34, 33, 32, 35, 36, 31)


def run(
    launcher: str, words: Sequence[str], timeout: float | None, report: str | None
) -> int:
    """Run a program, show what it prints, tell why it failed; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wishes
            signal.signal(number, _end)
    output = Output(by_rank=launcher == "torchrun")
    start = LAUNCHERS[launcher]
    options: dict[str, Any] = {"timeout": timeout, "limits": NO_LIMITS, "cold": True}
    try:
        if report:  # better now than after hours
            Path(report).touch()
        done = start(words, watch=output.update, **options)
    except (RunFailed, RunInterrupted) as failed:
        if failed.run is None:
            print(f"ddp-lab: {failed}", file=sys.stderr)
            return 1
        done = failed.run
    finally:
        if output.folder:  # still there if we were told to end
            shutil.rmtree(output.folder, ignore_errors=True)
    if done.failure:
        print(f"\n{done.failure.report()}", file=sys.stderr)
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    code = exit_code(done)
    if report:
        Path(report).write_text(json.dumps(as_json(done, code), indent=1) + "\n")
    return code


def _end(number: int, frame: object) -> None:
    """Leave, whatever we are doing; on the way out the run is ended."""
    raise SystemExit(128 + number)


def exit_code(done: Run) -> int:
    """Return the program's own exit code, as a shell has it."""
    if done.failure and done.failure.kind in ("interrupt", "timeout"):
        return INTERRUPTED if done.failure.kind == "interrupt" else TIMED_OUT
    code = done.code or 0
    if code == 0 and done.failure:
        return 1  # it left well just when it was ended
    return 128 - code if code < 0 else code


def as_json(done: Run, code: int) -> dict:
    """Return what is known of a run, for a program to read."""
    failure = None
    if done.failure:
        failure = {name: getattr(done.failure, name) for name in TOLD}
        failure["stands"] = [
            {
                "rank": stand.rank,
                "state": stand.state,
                "call": stand.name or None,
                "where": stand.frame.place if stand.frame else None,
                "peers": list(stand.peers),
            }
            for stand in done.failure.stands
        ]
    return {
        "command": done.command,
        "exit_code": code,
        "exit_codes": done.exit_codes,
        "seconds": round(done.seconds, 3),
        "failure": failure,
        "notes": done.notes,
        "facts": done.facts,
    }


class Output:
    """What the ranks print, shown line by line with the rank in front.

    Their files are followed to the end of each, and nothing is read twice or kept: a
    training may print for days.
    """

    def __init__(self, by_rank: bool) -> None:
        self.by_rank = by_rank
        self.folder: Path | None = None
        self.files: dict[Path, _File] = {}
        self.notes = {""}
        """What has been told beside."""

    def update(self, run: Run) -> None:
        """Show what has come since the last time; the run may have ended."""
        self.folder = self.folder or run.log_folder
        if self.folder is None:
            return
        self._open(None, self.folder / names.OUT)
        if self.by_rank:  # what torchrun itself complains of, the report tells
            for homes in folders_by_attempt(self.folder):
                for rank, home in enumerate(homes):
                    self._open(rank, home / names.STDOUT, home / names.STDERR)
        else:
            self._open(None, self.folder / names.ERR)
        for note in (run.state, run.played or _first_rank(self.folder)):
            if note not in self.notes:
                print(f"note: {note}", file=sys.stderr)
                self.notes.add(note)
        for file in self.files.values():
            file.show(last=run.code is not None)

    def _open(self, rank: int | None, *paths: Path) -> None:
        """Follow the files that a rank writes, as soon as they are there."""
        for path in paths:
            if path not in self.files and path.exists():
                self.files[path] = _File(path, rank)


def _first_rank(folder: Path) -> str:
    """Tell which rank of a job of several machines the first one here is.

    torchrun, and so the lab, counts on each machine from 0.
    """
    for home in rank_folders(folder):
        where = read_json(home / names.WHERE)
        if where and (first := where["rank"] - where["local_rank"]):
            return f"rank 0 here is rank {first} of the job"
    return ""


class _File:
    """One file that grows, and how far it has been shown."""

    def __init__(self, path: Path, rank: int | None):
        error = path.name in ("stderr.log", "err")
        self.sink = (sys.stderr if error else sys.stdout) or open(os.devnull, "w")
        self.prefix = _prefix(rank, error, self.sink.isatty())
        self.mark = b"" if rank is None else f"[rank {rank}] ".encode()
        self.file: BinaryIO = open(path, "rb")  # noqa: SIM115  (followed to the end)
        self.rest = b""  # of a line that has begun
        self.next = 0.0  # when to show a progress bar again

    def show(self, last: bool) -> None:
        """Show the lines that are complete; in the end, all."""
        while data := self.file.read(1 << 20):
            *lines, self.rest = (self.rest + data).split(b"\n")
            self._write(b"".join(self._line(line) for line in lines))
            # Of a progress bar, which draws over itself, the last state counts.
            start = self.rest.rfind(b"\r", 0, -1) + 1
            self.rest = self.rest[start:]
            last = last or self._shows_bar(bool(start))
        if last and self.rest:
            self._write(self._line(self.rest))
            self.rest = b""

    def _shows_bar(self, bar: bool) -> bool:
        """Tell whether it is time to show how far a progress bar has come."""
        now = time.monotonic()
        if not bar or now < self.next:
            return False
        self.next = now + PROGRESS
        return True

    def _line(self, line: bytes) -> bytes:
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        known = self.mark and line.startswith(self.mark)
        line = line[len(self.mark) :] if known else line
        return self.prefix + line + b"\n"

    def _write(self, text: bytes) -> None:
        try:
            self.sink.flush()
            self.sink.buffer.write(text)
            self.sink.buffer.flush()
        except BrokenPipeError:  # whoever read has gone, as `head` goes
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.sink.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None


def _prefix(rank: int | None, error: bool, terminal: bool) -> bytes:
    """Return what stands in front of a rank's line."""
    if rank is None:
        return b""
    text = f"[rank {rank}]"
    if terminal and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{COLORS[rank % len(COLORS)]}m{text}\x1b[0m"
    return f"{text} {'(stderr) ' * error}".encode()

"""`whichrank torchrun` and `whichrank python`: a run, shown as it comes."""

import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank import launch
from whichrank.explain.causes.ended import Stopped
from whichrank.record import names
from whichrank.record.files import read_json
from whichrank.record.logs import rank_folders
from whichrank.record.tail import Stream, Tail
from whichrank.record.words import signal_name
from whichrank.run.limits import Limits
from whichrank.run.result import Run, RunFailed, RunInterrupted

# A program of one's own may train, and print, for as long as it likes.
NO_LIMITS = Limits(silence=math.inf, output=sys.maxsize)
LAUNCHERS = {"torchrun": launch.torchrun, "python": launch.python}
INTERRUPTED, TIMED_OUT = 130, 124  # as a shell, and timeout(1), say it
# What a report says of a failure, for a program to read.
REPORTED: tuple[str, ...] = ("kind", "rank", "node", "cause", "where", "line")
REPORTED += ("symptom", "means", "traceback", "others", "earlier", "places")
PROGRESS = 10.0  # seconds between two states of a progress bar
# The ranks' colors in a terminal, which brings its own light or dark background.
COLORS = (34, 33, 32, 35, 36, 31)


def run(
    launcher: str,
    words: Sequence[str],
    timeout: float | None,
    report: str | None = None,
    *,
    whole: bool = True,
) -> int:
    """Run a program, show what it prints, tell why it failed; return the exit code.

    Of a program that is not run as a `whole`, how it ends is not told.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wishes
            signal.signal(number, _end)
    output = Output(by_rank=launcher == "torchrun")
    start = LAUNCHERS[launcher]
    options: dict[str, Any] = {"timeout": timeout, "limits": NO_LIMITS}
    try:
        if report:  # better now than after hours
            Path(report).touch()
        done = start(words, watch=output.update, **options)
    except (RunFailed, RunInterrupted) as failed:
        if failed.run is None:
            print(f"whichrank: {failed}", file=sys.stderr)
            return 1
        done = failed.run
    finally:
        if output.tail:  # its folder is still there if we were told to end
            output.tail.close()
            shutil.rmtree(output.tail.folder, ignore_errors=True)
    if done.failure:
        print(f"\n{done.failure.report()}", file=sys.stderr)
    for note in done.notes if whole else []:
        print(f"note: {note}", file=sys.stderr)
    code = exit_code(done)
    if report:
        Path(report).write_text(json.dumps(as_json(done, code), indent=1) + "\n")
    return code


def _end(number: int, frame: object) -> None:
    """Leave, whatever we are doing; on the way out the run is ended."""
    said = f"whichrank: asked to end by {signal_name(number)}, and ends the run\n"
    with suppress(OSError):  # the terminal has gone
        os.write(2, said.encode())  # a stream may be in the midst of a line
    raise SystemExit(128 + number)


def exit_code(done: Run) -> int:
    """Return the program's own exit code, as a shell has it."""
    known = (done.failure.why, *done.failure.also) if done.failure else ()
    by = {each.by for each in known if isinstance(each, Stopped)}
    if by & {"interrupt", "timeout"}:
        return INTERRUPTED if "interrupt" in by else TIMED_OUT
    code = done.code or 0
    if code == 0 and done.failure:
        return 1  # it left well just when it was ended
    return 128 - code if code < 0 else code


def as_json(done: Run, code: int) -> dict:
    """Return what is known of a run, for a program to read."""
    failure = None
    if done.failure:
        failure = {name: getattr(done.failure, name) for name in REPORTED}
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
    """What the ranks print, shown line by line with the rank in front."""

    def __init__(self, by_rank: bool) -> None:
        self.by_rank = by_rank
        self.tail: Tail | None = None
        self.notes = {""}
        """What has been told beside."""
        self.next: dict[Stream, float] = {}  # when to show a progress bar again

    def update(self, run: Run) -> None:
        """Show what has come since the last time; the run may have ended."""
        if self.tail is None:
            if run.log_folder is None:
                return
            self.tail = Tail(run.log_folder, self.by_rank)
        streams = self.tail.streams()
        for note in (run.state, run.played or _first_rank(self.tail.folder)):
            if note not in self.notes:
                print(f"note: {note}", file=sys.stderr)
                self.notes.add(note)
        last, now = run.code is not None, time.monotonic()
        for stream in streams:
            for lines in stream.blocks():
                self._write(stream, lines)
            bar = stream.has_bar and now >= self.next.get(stream, 0.0)
            if stream.rest and (last or bar):
                self._write(stream, [stream.rest.rstrip(b"\r")])
                stream.rest = b""
                self.next[stream] = now + PROGRESS

    def _write(self, stream: Stream, lines: list[bytes]) -> None:
        """Show lines, each with its rank in front, as which it may name itself."""
        sink = sys.stderr if stream.is_error else sys.stdout
        if not sink or not lines:  # it may be closed
            return
        begin = b"\n" + _prefix(stream.rank, stream.is_error, sink.isatty())
        text = b"".join([begin + line for line in lines])
        if stream.rank is not None:
            text = text.replace(b"%b[rank %d] " % (begin, stream.rank), begin)
        try:
            sink.flush()
            sink.buffer.write(text[1:] + b"\n")
            sink.buffer.flush()
        except BrokenPipeError:  # the reader has gone, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None


def _first_rank(folder: Path) -> str:
    """Tell which rank of a job of several machines the first one here is.

    torchrun, and so we, count on each machine from 0.
    """
    for home in rank_folders(folder):
        where = read_json(home / names.WHERE)
        if where and (first := where["rank"] - where["local_rank"]):
            return f"rank 0 here is rank {first} of the job"
    return ""


def _prefix(rank: int | None, error: bool, terminal: bool) -> bytes:
    """Return what stands in front of a rank's line."""
    if rank is None:
        return b""
    text = f"[rank {rank}]"
    if terminal and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{COLORS[rank % len(COLORS)]}m{text}\x1b[0m"
    return f"{text} {'(stderr) ' * error}".encode()

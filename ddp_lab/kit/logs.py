"""Read what the ranks of a run wrote: lines, facts, warnings, tracebacks."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 1_000_000  # bytes read from either end of a file; a notebook should stay small
# Printed by every healthy run; whatever else appears on stderr is for the reader.
NOISE = re.compile(r"OMP_NUM_THREADS|^\*+$|^\[Gloo\] Rank|^\s*$")
# torch puts "[rank1]: " in front of every line of an uncaught exception.
TRACEBACK_PREFIX = re.compile(r"^\[rank\d+\]:[ ]?", re.MULTILINE)
TRACEBACK = re.compile(
    r"^(Traceback \(most recent call last\):|Fatal Python error: |  File .*, line)",
    re.MULTILINE,
)


@dataclass
class RankLog:
    """What one rank wrote."""

    lines: list[str] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    traceback: str = ""
    time: float = 0.0
    """When the traceback was written, in seconds since the epoch."""

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
        self.warnings = [
            line for line in warnings.splitlines() if not NOISE.search(line)
        ]


def read_ranks(folder: Path) -> list[RankLog]:
    """Return the logs that torchrun keeps in `folder` by rank, of the last attempt."""
    attempts = sorted(folder.glob("*/attempt_*"), key=lambda path: path.name)
    if not attempts:
        return []
    ranks = sorted(attempts[-1].iterdir(), key=lambda path: int(path.name))
    return [_read_rank(rank) for rank in ranks]


def _read_rank(folder: Path) -> RankLog:
    log = RankLog()
    for line in read(folder / "stdout.log").splitlines():
        log.add_line(line)
    log.add_stderr(read(folder / "stderr.log"))
    report = folder / "error.json"  # written by @record
    if report.exists():
        log.time = report.stat().st_mtime
        log.traceback = _callstack(report) or log.traceback
    return log


def _callstack(report: Path) -> str:
    try:
        return json.loads(report.read_text())["message"]["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError):
        return ""  # half-written, because the rank was ended just then


def split_by_prefix(stdout: str, stderr: str) -> list[RankLog]:
    """Return the logs of ranks that shared one output; see `launch.python`."""
    logs = [RankLog()]
    # An unbuffered print is two writes, so lines of two ranks may have run together.
    start = r'(?<=.)(?=\[rank \d+\] |\{"rank": )'
    for line in re.sub(start, "\n", stdout).splitlines():
        rank = re.match(r"\[rank (\d+)\] |\{.*\"rank\": (\d+)", line)
        number = int(rank[1] or rank[2]) if rank else 0
        logs += [RankLog() for _ in range(number + 1 - len(logs))]
        logs[number].add_line(line)
    logs[0].add_stderr(stderr)
    return logs


def read(path: Path) -> str:
    """Return the text of `path`; of a long one the two ends."""
    try:
        with open(path, "rb") as file:
            data = file.read(2 * LIMIT + 1)
            if len(data) > 2 * LIMIT:
                size = file.seek(0, 2)
                file.seek(size - LIMIT)
                gap = f"\n... {size - 2 * LIMIT:,} bytes left out ...\n".encode()
                data = data[:LIMIT] + gap + file.read()
    except FileNotFoundError:
        return ""
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")

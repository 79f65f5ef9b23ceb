"""Read what the ranks of a run wrote: lines, facts, warnings, tracebacks."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from ddp_lab.kit.explain import stacks
from ddp_lab.kit.explain.calls import Call, from_flight

LIMIT = 1_000_000  # bytes read from either end of a file
# Colours and other control sequences, then whatever else a page cannot show.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
# Printed by every healthy run; whatever else appears on stderr is for the reader.
NOISE = re.compile(r"OMP_NUM_THREADS|^\*+$|^\[Gloo\] Rank|^\s*$")
# torch puts "[rank1]: " in front of every line of an uncaught exception.
TRACEBACK_PREFIX = re.compile(r"^\[rank\d+\]:[ ]?", re.MULTILINE)
# How multiprocessing introduces the traceback of a child, which its parent may ignore.
CHILD = re.compile(r"^Process \S*?-(\d+)(?::\d+)*:\n(?=Traceback)", re.MULTILINE)
TRACEBACK = re.compile(
    r"^(Traceback \(most recent call last\):|Fatal Python error: |  File .*, line)",
    re.MULTILINE,
)

# The exit race (see rank.py) may still abort a child of mp.spawn that has said it all.
ABORT = re.compile(
    r"^Fatal Python error: Aborted.*?(?=^Traceback \(most recent|\Z)", re.M | re.S
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
    stack: list[stacks.Frame] = field(default_factory=list)
    """Where it stood when it was last seen."""
    calls: list[Call] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    """The ranks of each process group."""
    end: dict | None = None
    """What the rank left when it had done everything; see rank.py."""

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

    def forget_the_end(self, before: "RankLog") -> None:
        """Forget what the rank did because it was ended: `before`, it stood there.

        Ranks end one after the other, and the last ones complain of lost connections.
        """
        self.stack = before.stack or self.stack
        self.calls, self.groups = before.calls, before.groups
        self.end, self.traceback = before.end, before.traceback

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


def read_rank(folder: Path, limit: int = LIMIT) -> RankLog:
    """Return what the rank with this log folder wrote."""
    log = RankLog()
    for line in read(folder / "stdout.log", limit).split("\n"):
        log.add_line(line)
    log.add_stderr(read(folder / "stderr.log", limit))
    report = folder / "error.json"  # written by @record
    if report.exists():
        log.time = report.stat().st_mtime
        log.traceback = clip(_callstack(report)) or log.traceback
    return log


def add_evidence(log: RankLog, folder: Path) -> None:
    """Add what the rank left beside its output; see rank.py."""
    log.end = read_json(folder / "end.json")
    flight = read_json(folder / "flight.json") or {}
    log.calls, log.groups = from_flight(flight), flight.get("groups", {})
    seen = stacks.from_json(read_json(folder / "stack.json"))
    said = stacks.from_text(log.traceback)
    raised = log.end or (folder / "error.json").exists()
    # What SIGTERM made it write is the last resort: it shows no variables.
    log.stack = (said if raised else seen) or said or seen
    log.stack = log.stack or stacks.from_text(read(folder / "stack"))


def read_json(path: Path):
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


def split_by_prefix(stdout: str, stderr: str) -> list[RankLog]:
    """Return the logs of ranks that shared one output; see `launch.python`."""
    logs = [RankLog()]
    # An unbuffered print is two writes, so lines of two ranks may have run together.
    start = r'(?<=.)(?=\[rank \d+\] |\{"rank": )'
    for line in re.sub(start, "\n", stdout).split("\n"):
        rank = re.match(r"\[rank (\d+)\] |\{.*\"rank\": (\d+)", line)
        number = int(rank[1] or rank[2]) if rank else 0
        logs += [RankLog() for _ in range(number + 1 - len(logs))]
        logs[number].add_line(line)
    if "terminated with the following error:" in stderr:
        stderr = ABORT.sub("", stderr)
    # What comes before the first child's own block, then number and block in turn.
    first, *blocks = CHILD.split(stderr)
    logs[0].add_stderr(first)
    for number, text in zip(blocks[::2], blocks[1::2], strict=True):
        rank = int(number) - 1  # multiprocessing counts from 1
        logs += [RankLog() for _ in range(rank + 1 - len(logs))]
        logs[rank].add_stderr(text)
    return logs


def read(path: Path, limit: int = LIMIT) -> str:
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

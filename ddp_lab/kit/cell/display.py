"""Turn a run into what a notebook displays: text, and HTML in the ranks' colours.

Also rows into the table that `make lab` and `make bench` print.
"""

import itertools
from html import escape
from pathlib import Path

from ddp_lab.kit.draw import RANK_COLOURS
from ddp_lab.kit.explain.files import clean
from ddp_lab.kit.run.limits import SHORT
from ddp_lab.kit.run.result import Run

TEXT = "margin: 0; font-family: monospace;"
PRE = f"{TEXT} padding: 0 0 0 0.6em; line-height: 1.35; border-left: 4px solid"
FAILED = "#c0392b"
# What is shown of each rank while it runs.
LIVE_LINES, LIVE_CHARACTERS = 12, 200


def bundle(run: Run, live: bool = False, failure: bool = True) -> dict[str, str]:
    """Return the MIME bundle of a run: each rank's lines, then its failure, if any."""
    blocks = [
        (RANK_COLOURS[rank % len(RANK_COLOURS)], _rank_lines(run, rank, live))
        for rank in range(len(run.lines))
    ]
    if live:
        blocks.append(("transparent", [f"running, {run.seconds:.0f} s"]))
    elif run.failure and failure:
        blocks.append((FAILED, run.failure.report(traceback=False).splitlines()))
    if run.notes:
        blocks.append((FAILED, [f"note: {note}" for note in run.notes]))
    blocks = [(colour, lines) for colour, lines in blocks if lines]
    return {
        "text/plain": "\n".join(line for _, lines in blocks for line in lines),
        "text/html": "".join(
            f'<pre style="{PRE} {colour};">{escape(chr(10).join(lines))}</pre>'
            for colour, lines in blocks
        ),
    }


def command(run: Run) -> dict[str, str]:
    """Return the MIME bundle of the command line that the run stands for."""
    text = f"$ {run.command}"
    return {
        "text/plain": text,
        "text/html": f'<pre style="{TEXT} opacity: 0.65;">{escape(text)}</pre>',
    }


def summary(run: Run) -> str:
    """Return an HTML table with a row for each rank."""
    rows = "".join(
        f"<tr><td>{rank}</td><td>{'' if code is None else code}</td>"
        f"<td>{len(lines)}</td><td>{escape(clean(', '.join(facts)))}</td></tr>"
        for rank, (code, lines, facts) in enumerate(
            zip(run.exit_codes, run.lines, run.facts, strict=True)
        )
    )
    head = "<tr><th>rank</th><th>exit code</th><th>lines</th><th>facts</th></tr>"
    return f"<table>{head}{rows}</table>"


def table(rows: list[list[str]]) -> str:
    """Return `rows` as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _rank_lines(run: Run, rank: int, live: bool) -> list[str]:
    prefix = f"[rank {rank}] "
    lines = [*run.lines[rank], *(f"(stderr) {line}" for line in run.warnings[rank])]
    lines = [line if line.startswith("[rank ") else prefix + line for line in lines]
    if live:
        return [_clip(line, LIVE_CHARACTERS) for line in lines[-LIVE_LINES:]]
    return _both_ends(lines, run.log_folder)


def _both_ends(lines: list[str], folder: Path | None) -> list[str]:
    """Return `lines`; if that is too much, the first and the last of them."""
    if sum(map(len, lines)) <= SHORT:
        return lines
    lines = [_clip(line, SHORT // 4) for line in lines]
    first, last = _fit(lines), _fit(lines[::-1])[::-1]
    where = f", all of it in {_relative(folder)}" if folder else ""
    return [*first, f"... (a long output{where}) ...", *last]


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _fit(lines: list[str]) -> list[str]:
    """Return as many of the first lines as half of what is shown has room for."""
    sizes = itertools.accumulate(map(len, lines))
    return [line for line, size in zip(lines, sizes, strict=True) if size <= SHORT // 2]


def _clip(line: str, width: int) -> str:
    return (
        line if len(line) <= width else f"{line[:width]}... ({len(line):,} characters)"
    )

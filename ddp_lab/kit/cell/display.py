"""Turn a run into what a notebook displays: text, and HTML in the ranks' colors.

Also rows into the table that `make lab` and `make bench` print.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from IPython.display import DisplayHandle, display

from ddp_lab.kit.draw import bar_color, standstill
from ddp_lab.kit.draw.colors import GREY, RIGHT_COLOR
from whichrank import SHORT, Call, Failure, Run

# JupyterLab would break a line in the middle of a word. (Of a notebook that it does not
# trust yet it drops `anywhere`.)
WRAP = "white-space: pre-wrap; word-break: normal; overflow-wrap: break-word;"
TEXT = f"margin: 0; font-family: monospace; {WRAP}"
BAR = "padding: 0 0 0 0.6em; line-height: 1.35; border-left: 4px solid"
FAILED = "#c0392b"
MARKS = {"✗": FAILED, "✓": RIGHT_COLOR, "?": GREY}
BETWEEN = 0.2  # seconds between two states of a run that has just begun
# What is shown of each rank while it runs.
LIVE_LINES, LIVE_CHARACTERS = 12, 200


class Screen:
    """A cell's output: live while the run goes on, in rank order once it has ended.

    The live part is one display that is updated in place, and ends as the command line
    or as what is shown last, because a stored output should not depend on when which
    rank printed.

    Args:
        command: whether the command line is shown.
    """

    def __init__(self, command: bool = True) -> None:
        self.command = command
        self.handle: DisplayHandle | None = None
        self.next = 0.0  # when to show more of the run
        self.state = ""  # the one that is shown

    def update(self, run: Run) -> None:
        """Show the run as it is, now and then."""
        now = time.monotonic()
        if self.handle is None:
            self.handle = display(self._head(run), raw=True, display_id=True)
            self.next = now + BETWEEN
        elif now >= self.next or run.state not in ("", self.state):
            head, lines = self._head(run), bundle(run, live=True)
            both = {mime: f"{head[mime]}\n{lines[mime]}".strip() for mime in head}
            self.handle.update(both, raw=True)
            # The longer it takes, the less often.
            self.next, self.state = now + BETWEEN + run.seconds / 10, run.state

    def finish(self, run: Run, raises: bool = False) -> None:
        """Show the run that has ended; if it raises, the error tells of its failure."""
        if self.handle:
            self.handle.update(self._head(run), raw=True)
        lines = bundle(run, failure=not raises)
        if lines["text/html"]:
            display(lines, raw=True)

    def show(self, shown: dict[str, str]) -> None:
        """Show something in place of the live part."""
        if self.handle:
            self.handle.update(shown, raw=True)
            self.handle = None
        else:
            display(shown, raw=True)

    def _head(self, run: Run) -> dict[str, str]:
        nothing = {"text/plain": "", "text/html": ""}
        return command(run) if self.command else nothing


def marked(text: str) -> dict[str, str]:
    """Return the MIME bundle of lines that may begin with ✗, ✓ or ?, in its color."""
    lines = []
    for line in text.split("\n"):
        mark, rest = line[:1], escape(line[1:])
        if color := MARKS.get(mark):
            mark = f'<span style="color: {color}">{mark}</span>'
        lines.append(mark + rest)
    html = "\n".join(lines)
    return {"text/plain": text, "text/html": f'<pre style="{TEXT}">{html}</pre>'}


def bundle(run: Run, live: bool = False, failure: bool = True) -> dict[str, str]:
    """Return the MIME bundle of a run: each rank's lines, then its failure, if any.

    Args:
        run: the run, or what there is of it so far.
        live: whether it still goes on.
        failure: whether to tell the failure in words; a cell that raises does so.
    """
    parts = []  # text and HTML
    for rank in range(len(run.lines)):
        lines = _rank_lines(run, rank, live)
        parts.append(_lines(lines, bar_color(rank)))
    if live:
        state = f"running for {run.seconds:.0f} s" + f": {run.state}" * bool(run.state)
        parts.append(_lines([state], "transparent"))
    elif run.failure:
        parts.append(_failure(run.failure, run.calls, failure))
    parts.append(_lines([f"note: {note}" for note in run.notes], FAILED))
    return {
        "text/plain": "\n".join(text for text, _ in parts if text),
        "text/html": "".join(html for _, html in parts),
    }


def _lines(lines: Sequence[str], color: str) -> tuple[str, str]:
    """Return lines as text and as HTML beside a bar in `color`."""
    text = "\n".join(lines)
    html = f'<pre style="{TEXT} {BAR} {color};">{escape(text)}</pre>'
    return (text, html) if lines else ("", "")


def _failure(
    failure: Failure, calls: Sequence[Sequence[Call]], in_words: bool
) -> tuple[str, str]:
    """Return a failure as text and as HTML: its cause, then where each rank stood."""
    text = failure.report(traceback=False) if in_words else ""
    shown = replace(failure, by_rank={}) if failure.stands else failure
    headline, _, more = shown.report(traceback=False).partition("\n")
    html = ""
    if in_words:
        html = f'<b style="{WRAP}">{escape(headline)}</b>'
        html += f'<div style="{WRAP}">{escape(more)}</div>' if more else ""
    if failure.stands:
        html += standstill(failure.stands, calls, failure.others, failure.places)
    style = f"margin: 0.5em 0; {BAR} {FAILED}"
    return text, f'<div style="{style};">{html}</div>' if html else ""


def command(run: Run) -> dict[str, str]:
    """Return the MIME bundle of the command line that the run stands for.

    If this machine has played several, also how, and what one would type on each.
    """
    typed = [f"node{node}$ {words}" for node, words in enumerate(run.typed)]
    plain = [] if "\n" in run.command else [f"$ {run.command}"]
    text = "\n".join(filter(None, [*plain, run.played, *typed])) or run.command
    return {
        "text/plain": text,
        "text/html": f'<pre style="{TEXT} opacity: 0.65;">{escape(text)}</pre>',
    }


def table(rows: list[list[str]]) -> str:
    """Return `rows` as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _rank_lines(run: Run, rank: int, live: bool) -> list[str]:
    prefix = "" if run.command.startswith("python") else f"[rank {rank}] "
    lines = [*run.lines[rank], *(f"(stderr) {line}" for line in run.warnings[rank])]
    lines = [line if line.startswith("[rank ") else prefix + line for line in lines]
    if live:
        return [_clip(line, LIVE_CHARACTERS) for line in lines[-LIVE_LINES:]]
    return _both_ends(lines)


def _both_ends(lines: list[str]) -> list[str]:
    """Return `lines`; if that is too much, the first and the last of them."""
    if sum(map(len, lines)) <= SHORT:
        return lines
    lines = [_clip(line, SHORT // 4) for line in lines]
    first, last = _fit(lines), _fit(lines[::-1])[::-1]
    return [*first, "... (a long output; `.lines` of the run has more) ...", *last]


def _fit(lines: list[str]) -> list[str]:
    """Return as many of the first lines as half of what is shown has room for."""
    sizes = itertools.accumulate(map(len, lines))
    return [line for line, size in zip(lines, sizes, strict=True) if size <= SHORT // 2]


def _clip(line: str, width: int) -> str:
    return (
        line if len(line) <= width else f"{line[:width]}... ({len(line):,} characters)"
    )

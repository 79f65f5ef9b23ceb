"""%%puzzle: a few lines, run on ranks at once, drawn beside what they should do.

The cell is written into its frame as `%%program` does. The program tells two facts by
rank, each {"calls": [...], "holds": [...]} as `draw.traces` takes them: the `target`
and, once there is something of the reader's, `yours`.
"""

import shlex
from collections.abc import Sequence
from html import escape

from ddp_lab.kit import launch
from ddp_lab.kit.cell import display as screen
from ddp_lab.kit.cell import program
from ddp_lab.kit.cell.compose import Order
from ddp_lab.kit.draw.colors import GREY, RIGHT_COLOR
from ddp_lab.kit.draw.traces import Trace, beside, differences
from whichrank import Run, RunFailed

DIFFERENCES = 3  # that are told in words
STANDSTILL = "Timeout"
JUDGED = ("AssertionError", STANDSTILL)  # how a frame ends a try: the picture tells


def puzzle(line: str, cell: str) -> None:
    """%%puzzle [--nproc-per-node N] ddp_lab/SUBJECT/puzzle_NAME.py

    Write the program of the puzzle, run it, and draw what it did beside the target. If
    that is right, run it with another number of ranks, too: a 3 may stand for all.
    """
    made, before = program.write(Order.of_puzzle(line), cell), []
    options, path = shlex.split(made.order.options), made.order.path
    output = screen.Screen(command=False)
    run = tried([*options, path], output)
    if run.failure is None and trace(run, "yours"):
        ranks = len(run.lines)
        other = tried(
            [*options, "--nproc-per-node", "3" if ranks == 2 else "2", path], output
        )
        if other.failure:
            run, before = other, [f"✗ right with {ranks} ranks, and not with these:"]
    output.show(shown(run, ", ".join(made.new), before))


def tried(command: list[str], output: screen.Screen) -> Run:
    """Launch a puzzle's program; return the run, which may have failed."""
    try:
        return launch.torchrun(command, watch=output.update)
    except RunFailed as failed:
        if failed.run is None:
            raise
        return failed.run


def trace(run: Run, fact: str) -> Trace | None:
    """Return what the ranks told of the target or of the reader's lines, if any did."""
    parts = [facts.get(fact, {}) for facts in run.facts]
    if not any(each.get("calls") or each.get("holds") for each in parts):
        return None
    return Trace([p.get("calls", []) for p in parts], [p.get("holds") for p in parts])


def stalled(run: Run, yours: Trace) -> list[str]:
    """Say who waits for a message that each end has called for, and so is drawn."""
    if not all(step.done for step in yours.steps):
        return []  # the picture tells
    if not any(act.name == "send" for act in yours.acts):
        return []
    facts = [facts.get("yours", {}) for facts in run.facts]
    inside = [rank for rank, each in enumerate(facts) if "holds" not in each]
    last = [(rank, len(yours.did[rank]) - 1) for rank in inside if yours.did[rank]]
    waits = [yours.each[key].waits for key in last]
    return [*waits, "a message is still under way: wait() for each isend and irecv"]


def verdict(
    run: Run, name: str, target: Trace, yours: Trace | None
) -> tuple[str, list[str]]:
    """Return the color of the verdict, and its lines; `name` is what was written."""
    if run.failure is None and yours is None:
        return GREY, ["not yet: only the target is shown; hint() helps"]
    if run.failure is None:
        return RIGHT_COLOR, ["✓ as the target"]
    lines = differences(target, yours) if yours else []
    if yours and run.failure.cause.startswith(STANDSTILL):
        lines = stalled(run, yours) + lines
    judged = run.failure.cause.startswith(JUDGED)
    if not lines or not judged:
        lines.insert(0, run.failure.report(traceback=False))
    if not judged and run.failure.kind == "exception" and run.failure.symptom is None:
        inside = [f" in {each}\n" for each in name.split(", ")]
        if not any(each in run.failure.traceback for each in inside):
            lines.insert(0, f"what {name} returned cannot be used:")
    more = [f"and {len(lines) - DIFFERENCES} more"] if len(lines) > DIFFERENCES else []
    return screen.FAILED, [f"✗ {each}" for each in lines[:DIFFERENCES]] + more


def shown(run: Run, name: str, before: Sequence[str] = ()) -> dict[str, str]:
    """Return the MIME bundle of a puzzle: its picture, and the verdict below it."""
    target, yours = trace(run, "target"), trace(run, "yours")
    if target is None:  # it ended before there was one
        return screen.bundle(run)
    color, lines = verdict(run, name, target, yours)
    lines = [*before, *lines]
    picture = beside(name, target, yours)
    style = f"margin: 0.5em 0; {screen.BAR} {color}; {screen.WRAP}"
    html = picture._repr_html_() + escape("\n".join(lines))
    return {
        "text/plain": "\n".join([repr(picture), *lines]),
        "text/html": f'<div style="{style}">{html}</div>',
    }

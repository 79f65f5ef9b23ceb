"""Figures that are drawn from a run, by the lesson that has made it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log

from ddp_lab.kit.draw.colors import GREY, INK, RULE, WHITE, bar_color, text_on, tint
from figs.page import Page, page
from whichrank import Call

WORLD = "0"  # what the group of all ranks is called
CALL = 140  # the width of a call
LEFT, RIGHT, TOP, BOTTOM = 116, 680, 132, 340  # where the axes are

LONG = 1.0  # seconds: a step that took longer was interrupted

Done = Sequence[float]
"""[when, step, ranks]: a step that was done, the time in seconds, by how many ranks."""


def drift(paths: Sequence[Sequence[float]], every: int, truth: float) -> Page:
    """Draw how the ranks walk apart for `every` steps, and meet at their mean.

    Args:
        paths: by rank, a weight after each step, and after each mean.
        every: how many steps a rank walks alone.
        truth: the weight at which a training on all data ends.

    Returns:
        The figure, in which all ranks start at 0.
    """
    times = [0, *(moment(i, every) for i in range(len(paths[0])))]
    walks = [[0.0, *path] for path in paths]
    meetings = [i for i in range(1, len(times)) if times[i] == times[i - 1]]
    means = ", ".join(f"{walks[0][i]:.2f}" for i in meetings)
    svg = page(
        f"{every} steps alone, then the mean",
        "Each line is the first weight of one rank. Drawn from the run.",
        f"Over {times[-1]} steps, {len(paths)} ranks walk apart for {every} steps at a "
        f"time and then meet at their mean: {means}. A training on all data ends at "
        f"{truth:.2f}.",
        398,
    )
    top = max(truth, *(max(walk) for walk in walks))

    def at(i: int, value: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * times[i] / times[-1]
        return x, BOTTOM - (BOTTOM - TOP) * value / top

    draw_axes(svg, times[-1], every, at(0, truth)[1])
    for rank, walk in enumerate(walks):
        svg.chip(LEFT + 70 * rank, 84, 62, 26, rank)
        points = (at(i, value) for i, value in enumerate(walk))
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        svg.path(d, stroke=bar_color(rank), width=2)
    for i in meetings:
        x, y = at(i, walks[0][i])
        svg.add("circle", cx=x, cy=y, r=5, fill=WHITE, stroke=INK, stroke_width=2)
    return svg


def moment(i: int, every: int) -> int:
    """Return after how many steps entry `i` of a path was noted."""
    block, place = divmod(i, every + 1)
    return block * every + min(place + 1, every)


def draw_axes(svg: Page, steps: int, every: int, level: float) -> None:
    """Draw the line of steps, the zero, and the level of the truth."""
    svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, stroke=RULE)
    svg.text(LEFT - 10, BOTTOM, "0", 13, fill=GREY, anchor="end")
    svg.line(LEFT, level, RIGHT, level, stroke=GREY, width=1.2, dash="6 4")
    svg.text(LEFT - 10, level, "all data", 13, fill=GREY, anchor="end")
    for step in range(0, steps + 1, every):
        x = LEFT + (RIGHT - LEFT) * step / steps
        svg.text(x, BOTTOM + 18, str(step), 13, fill=GREY)
    svg.text((LEFT + RIGHT) / 2, BOTTOM + 38, "steps", 13, fill=GREY)


def counters(calls: Sequence[Sequence[Call]]) -> Page:
    """Draw how far each rank has counted in each group.

    Args:
        calls: by rank, the calls that it has made, oldest first.

    Returns:
        The figure: a column for each group, a row for each rank.
    """
    names = {call.group for by_rank in calls for call in by_rank}
    groups = sorted(names, key=lambda name: (len(name), name))
    counts = [
        [[call for call in by_rank if call.group == group] for group in groups]
        for by_rank in calls
    ]
    told = "; ".join(
        f"rank {rank}, "
        + ", ".join(
            f"group {group}: {', '.join(map(_counted, made)) or 'none'}"
            for group, made in zip(groups, by_group, strict=True)
        )
        for rank, by_group in enumerate(counts)
    )
    svg = page(
        "each group counts its own calls",
        "A call pairs with the one that has its number, in the same group.",
        f"Calls with their numbers. {told}.",
        110 + 46 * len(calls),
    )
    width = (RIGHT - LEFT) / max(1, len(groups))
    for place, group in enumerate(groups):
        name = f"group {group}" + ": all" * (group == WORLD)
        svg.text(LEFT + width * place, 88, name, 13, fill=GREY, anchor="start")
    for rank, by_group in enumerate(counts):
        y = 106 + 46 * rank
        svg.chip(40, y, 62, 34, rank)
        for place, made in enumerate(by_group):
            _draw_count(svg, LEFT + width * place, y, width, rank, made)
    return svg


def _draw_count(
    svg: Page, x: float, y: float, width: float, rank: int, made: Sequence[Call]
) -> None:
    """Draw a rank's last calls in one group, or an empty place."""
    step = min(CALL, width)
    shown = made[-int(width // step) :]
    for place, call in enumerate(shown):
        svg.block(x + step * place, y, step - 8, 34, _counted(call), rank)
    if not shown:
        svg.box(x, y, step - 8, 34, stroke=GREY, dash="5 4")
        svg.label(x, y, step - 8, 34, "no call", fill=GREY)


def _counted(call: Call) -> str:
    return f"{call.number} {call.name}"


Matrix = Sequence[Sequence[float | None]]
DARK = "#0072B2"  # of the longest time
SIDE, CHIP, GAP = 300, 34, 4  # of a matrix; of a rank's name; between two cells


def pair_times(times: Mapping[str, Matrix], nodes: Sequence[int]) -> Page:
    """Draw how long each pair of ranks took, as a matrix for each run.

    Args:
        times: by the name of a run, by rank, its milliseconds with each other rank.
        nodes: by rank, the number of its node.

    Returns:
        The figure: one matrix beside the other, darker where it took longer.
    """
    told = "; ".join(f"{name}: {_told(rows, nodes)}" for name, rows in times.items())
    svg = page(
        "an all_reduce of each two ranks",
        "Milliseconds; the thick lines part the nodes. Drawn from the runs.",
        f"Milliseconds that each two of {len(nodes)} ranks took. {told}.",
        448,
    )
    longest = max(t for rows in times.values() for row in rows for t in row if t)
    for i, (name, rows) in enumerate(times.items()):
        draw_pairs(svg, 40 + (SIDE + 40) * i, 92, name, rows, nodes, longest)
    return svg


def _told(rows: Matrix, nodes: Sequence[int]) -> str:
    """Say in words what a matrix shows: the range of times inside and across."""
    parts = []
    for where, same in (("inside a node", True), ("across", False)):
        found = [
            t
            for a, row in enumerate(rows)
            for b, t in enumerate(row)
            if t is not None and (nodes[a] == nodes[b]) == same
        ]
        if found:
            parts.append(f"{where} {min(found):.1f} to {max(found):.1f}")
    return ", ".join(parts)


def draw_pairs(
    svg: Page,
    x: float,
    y: float,
    name: str,
    rows: Matrix,
    nodes: Sequence[int],
    longest: float,
) -> None:
    """Draw one matrix with its upper left corner at (x, y)."""
    svg.text(x, y, name, 14, anchor="start", bold=True)
    x, y = x + CHIP, y + 16 + CHIP
    size = (SIDE - CHIP) / len(rows)
    for rank, row in enumerate(rows):
        svg.chip(x - CHIP, y + size * rank + GAP / 2, 28, size - GAP, rank, str(rank))
        svg.chip(x + size * rank + GAP / 2, y - CHIP, size - GAP, 28, rank, str(rank))
        for other, time in enumerate(row):
            if time is None:
                continue
            fill = tint(DARK, 0.1 + 0.9 * time / longest)
            left, top = x + size * other + GAP / 2, y + size * rank + GAP / 2
            svg.box(left, top, size - GAP, size - GAP, fill=fill, stroke="none")
            text = f"{time:.1f}" if time < 10 else f"{time:.0f}"
            svg.label(left, top, size - GAP, size - GAP, text, 14, fill=text_on(fill))
    for rank in range(1, len(rows)):
        if nodes[rank] != nodes[rank - 1]:
            at, end = size * rank, size * len(rows)
            svg.line(x, y + at, x + end, y + at, stroke=INK, width=2)
            svg.line(x + at, y, x + at, y + end, stroke=INK, width=2)


def progress(diary: Sequence[Done], steps: int) -> Page:
    """Draw the steps of a training that was interrupted, over time.

    Args:
        diary: every step that was done, in the order of time; a step may come twice.
        steps: how many it takes to be done.

    Returns:
        The figure, with a line for each stretch between two interruptions, the thicker
        the more ranks there were.
    """
    parts = stretches(diary)
    twice = len(diary) - len({done[1] for done in diary})
    told = [f"{p[0][2]:.0f} ranks, {p[0][1]:.0f} to {p[-1][1]:.0f}" for p in parts]
    svg = page(
        "how far the training was, and when",
        "A line for each stretch without a stop. Drawn from the run's diary.",
        f"Steps over time: {'; '.join(told)}. {twice} were done twice.",
        398,
    )
    first, seconds = diary[0][0], diary[-1][0] - diary[0][0]

    def at(done: Done) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * (done[0] - first) / seconds
        return x, BOTTOM - (BOTTOM - TOP) * done[1] / steps

    svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, stroke=RULE)
    svg.text(LEFT - 10, BOTTOM, "step 0", 13, fill=GREY, anchor="end")
    svg.text(LEFT - 10, TOP, f"step {steps}", 13, fill=GREY, anchor="end")
    svg.text(LEFT, BOTTOM + 18, "0 s", 13, fill=GREY)
    svg.text(RIGHT, BOTTOM + 18, f"{seconds:.0f} s", 13, fill=GREY)
    for part in parts:
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in map(at, part))
        svg.path(d, stroke=bar_color(0), width=1 + part[0][2])
        x, y = at(part[-1])
        svg.text(x, y - 12, f"{part[0][2]:.0f} ranks", 12, fill=GREY)
    return svg


def stretches(diary: Sequence[Done]) -> list[list[Done]]:
    """Return the steps between two interruptions, for each such stretch."""
    found = [[diary[0]]]
    for before, after in pairwise(diary):
        goes_on = after[1] == before[1] + 1 and after[2] == before[2]
        if not goes_on or after[0] > before[0] + LONG:
            found.append([])
        found[-1].append(after)
    return found


Curve = Sequence[tuple[float, float]]
"""(how often in minutes, what share of the time is lost)."""


def lost_time(truth: Curve, dots: Curve, best: float) -> Page:
    """Draw what saving too often and too rarely costs.

    Args:
        truth: what the formula says, by growing interval.
        dots: what was simulated.
        best: the interval that the rule of thumb advises.

    Returns:
        The figure, whose axis of intervals is logarithmic.
    """
    (low, often), (high, rarely) = truth[0], truth[-1]
    interval, least = min(truth, key=lambda point: point[1])
    top = max(share for _, share in (*truth, *dots))
    svg = page(
        "save often, or rarely?",
        "Share of time lost. Line: formula. Dots: simulated. Dashed: rule of thumb.",
        f"The share of time that is lost, over the minutes between two saves: "
        f"{often:.0%} at {low:.0f}, {least:.0%} at {interval:.0f}, {rarely:.0%} at "
        f"{high:.0f}. The rule of thumb says {best:.0f} minutes.",
        398,
    )

    def at(interval: float, share: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * log(interval / low) / log(high / low)
        return x, BOTTOM - (BOTTOM - TOP) * share / top

    svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, stroke=RULE)
    x, _ = at(best, 0)
    svg.line(x, TOP, x, BOTTOM, stroke=GREY, width=1.2, dash="6 4")
    for minutes in (low, best, high):
        svg.text(at(minutes, 0)[0], BOTTOM + 18, f"{minutes:.0f} min", 13, fill=GREY)
    axis = "between two saves (logarithmic)"
    svg.text((LEFT + RIGHT) / 2, BOTTOM + 40, axis, 13, fill=GREY)
    for share in (0, top):
        y = at(low, share)[1]
        svg.text(LEFT - 10, y, f"{share:.0%}", 13, fill=GREY, anchor="end")
    d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in truth))
    svg.path(d, stroke=bar_color(0), width=2)
    for x, y in (at(*point) for point in dots):
        svg.add("circle", cx=x, cy=y, r=5, fill=WHITE, stroke=INK, stroke_width=2)
    return svg

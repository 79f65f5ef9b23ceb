"""Figures that are drawn from a run, by the lesson that has made it."""

from collections.abc import Mapping, Sequence

from ddp_lab.kit.draw.colours import GREY, INK, RULE, WHITE, bar_colour, text_on, tint
from ddp_lab.kit.draw.svg import Svg, page
from ddp_lab.kit.explain.calls import Call

WORLD = "0"  # what the group of all ranks is called
CALL = 140  # the width of a call
LEFT, RIGHT, TOP, BOTTOM = 116, 680, 132, 340  # where the axes are


def drift(paths: Sequence[Sequence[float]], every: int, truth: float) -> Svg:
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
        svg.path(d, stroke=bar_colour(rank), width=2)
    for i in meetings:
        x, y = at(i, walks[0][i])
        svg.add("circle", cx=x, cy=y, r=5, fill=WHITE, stroke=INK, stroke_width=2)
    return svg


def moment(i: int, every: int) -> int:
    """Return after how many steps entry `i` of a path was noted."""
    block, place = divmod(i, every + 1)
    return block * every + min(place + 1, every)


def draw_axes(svg: Svg, steps: int, every: int, level: float) -> None:
    """Draw the line of steps, the zero, and the level of the truth."""
    svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, stroke=RULE)
    svg.text(LEFT - 10, BOTTOM, "0", 13, fill=GREY, anchor="end")
    svg.line(LEFT, level, RIGHT, level, stroke=GREY, width=1.2, dash="6 4")
    svg.text(LEFT - 10, level, "all data", 13, fill=GREY, anchor="end")
    for step in range(0, steps + 1, every):
        x = LEFT + (RIGHT - LEFT) * step / steps
        svg.text(x, BOTTOM + 18, str(step), 13, fill=GREY)
    svg.text((LEFT + RIGHT) / 2, BOTTOM + 38, "steps", 13, fill=GREY)


def counters(calls: Sequence[Sequence[Call]]) -> Svg:
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
    svg: Svg, x: float, y: float, width: float, rank: int, made: Sequence[Call]
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


def pair_times(times: Mapping[str, Matrix], nodes: Sequence[int]) -> Svg:
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
    svg: Svg,
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

"""Pictures of pipelines' schedules: as tables, as foreseen, and as a run went."""

from collections.abc import Mapping, Sequence

from ddp_lab.kit.draw.colors import GREY, INK, rank_color, text_on, tint
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import END, START

Bar = Sequence
"""[name, start, end], the last two in units of time.

A name like "2F5" is: stage, F, B, I or W, micro-batch.
"""
TINTS = {"F": 0.25, "B": 0.7, "I": 0.5, "W": 0.9}
MEANS = {"F": "forward", "B": "backward", "I": "its input half", "W": "its weight half"}
HEIGHT, GAP = 26, 32  # of a rank's row; from one row to the next
NARROW = 8  # pixels: in a narrower box a number has no room
IDLE = tint(GREY, 0.35)


def schedules(title: str, pictures: Mapping[str, Sequence[Sequence[Bar]]]) -> Page:
    """Draw some schedules below each other, all to the same scale of time.

    Args:
        title: what the page shows.
        pictures: by caption, the bars of each rank.

    Returns:
        The drawing, which a notebook displays as the last expression of a cell.
    """
    rows = [from_zero(rows) for rows in pictures.values()]
    ends = [max(end for row in each for *_, end in row) for each in rows]
    captions = [f"{c}: {end:.4g} units" for c, end in zip(pictures, ends, strict=True)]
    scale = (END - START) / max(ends)
    kinds = [
        k for k in TINTS if any(k in b[0] for each in rows for r in each for b in r)
    ]
    height = 80 + sum(78 + GAP * len(each) for each in rows)
    svg = page(
        title,
        "Number: the micro-batch, where it fits. Gray: the rank is idle.",
        f"Ranks over time, as bars, one for each action. {'; '.join(captions)}.",
        height,
    )
    draw_legend(svg, kinds)
    y = 104.0
    for caption, each, end in zip(captions, rows, ends, strict=True):
        svg.text(START, y, caption, 13, fill=GREY, anchor="start")
        for rank, row in enumerate(each):
            draw_row(svg, y + 14 + GAP * rank, rank, row, end, scale)
        draw_units(svg, y + 14 + GAP * len(each), end, scale)
        y += 78 + GAP * len(each)
    return svg


def from_zero(rows: Sequence[Sequence[Bar]]) -> list[list[Bar]]:
    """Return bars that count from the first start of all."""
    first = min(start for row in rows for _, start, _ in row)
    return [[[n, start - first, end - first] for n, start, end in row] for row in rows]


def draw_legend(svg: Page, kinds: Sequence[str]) -> None:
    """Say which shade is which kind of action."""
    for place, kind in enumerate(kinds):
        x = START + 140 * place
        svg.box(x, 70, 18, 16, fill=tint(INK, TINTS[kind] / 2), stroke=GREY, radius=2)
        svg.text(x + 26, 79, f"{kind} {MEANS[kind]}", 13, fill=GREY, anchor="start")


def draw_units(svg: Page, y: float, end: float, scale: float) -> None:
    """Draw the axis of time below the rows of a schedule."""
    step = 1 if end < 15 else 5
    ticks = {round(START + n * scale, 1): n for n in range(0, int(end) + 1, step)}
    marks = "".join(f"M{x:g} {y:g}v6" for x in ticks)
    svg.path(f"M{START} {y:g}h{end * scale:.1f}{marks}", stroke=GREY)
    svg.text(START - 20, y + 16, "units", 12, fill=GREY, anchor="end")
    for x, n in ticks.items():
        svg.text(x, y + 16, str(n), 12, fill=GREY)


def draw_row(
    svg: Page, y: float, rank: int, row: Sequence[Bar], end: float, scale: float
) -> None:
    """Draw what one rank does until the `end` of all, on gray: there it is idle.

    One element holds all boxes of a kind, and one their numbers: that keeps it small.
    """
    color = rank_color(rank)
    svg.chip(40, y, 64, HEIGHT, rank)
    svg.box(START, y, end * scale, HEIGHT, fill=IDLE, stroke="none", radius=0)
    for kind, tone in TINTS.items():
        boxes, places, numbers = "", [], ""
        for name, begins, ends in row:
            _, found, micro_batch = name.partition(kind)
            x, w = round(START + begins * scale, 1), round((ends - begins) * scale, 1)
            if not found:
                continue
            boxes += f"M{x:g} {y:g}h{w:g}v{HEIGHT}h{-w:g}z"
            if w >= NARROW and len(micro_batch) == 1:
                places.append(f"{x + w / 2:.0f}")
                numbers += micro_batch
        if boxes:
            svg.add("path", d=boxes, fill=tint(color, tone), stroke=color)
        if numbers:
            # With a place for each character, each is centered on its own.
            font = {"font_size": 11, "text_anchor": "middle", "fill": ink(rank, kind)}
            svg.add("text", numbers, x=" ".join(places), y=y + HEIGHT / 2 + 4, **font)


def ink(rank: int, kind: str) -> str:
    """Return a color that can be read on a box of this kind."""
    return text_on(rank_color(rank)) if TINTS[kind] > 0.6 else INK


@figure
def schedule_table() -> Page:
    """Draw a table of actions, and when each of them happens."""
    table = {
        0: [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)],
        1: [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)],
    }
    starts = [[0, 1, 4, 6, 7, 10], [1, 2, 4, 5, 7, 8]]
    svg = page(
        "a schedule is a table",
        "Each rank has a row of actions; each begins when what it needs is there.",
        "The rows of two ranks. Rank 0: F0, F1, B0, F2, B1, B2. Rank 1: F0, B0, F1, "
        "B1, F2, B2. Below them the same actions over 12 units of time, a forward as "
        "long as one unit and a backward as two: rank 1 begins after one unit, rank 0 "
        "waits from unit 2 to 4 and from 9 to 10, and the last action is rank 0's B2.",
        310,
    )
    draw_legend(svg, "FB")
    unit = (END - START) / 12
    for rank, row in table.items():
        y = 104 + GAP * rank
        svg.chip(40, y, 64, HEIGHT, rank)
        for place, (kind, i) in enumerate(row):
            x, color = START + 48 * place, rank_color(rank)
            svg.box(x, y, 40, HEIGHT, fill=tint(color, TINTS[kind]), stroke=color)
            text = f"{kind}{i}"
            svg.text(x + 20, y + HEIGHT / 2, text, 13, fill=ink(rank, kind))
    svg.text(START, 196, "the same over time", 13, fill=GREY, anchor="start")
    for rank, row in table.items():
        bars = [
            [f"{rank}{kind}{i}", start, start + (2 if kind == "B" else 1)]
            for (kind, i), start in zip(row, starts[rank], strict=True)
        ]
        draw_row(svg, 212 + GAP * rank, rank, bars, 12, unit)
    draw_units(svg, 276, 12, unit)
    return svg

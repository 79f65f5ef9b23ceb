"""Figures of the lesson on profiling: what each rank does in its steps."""

from collections.abc import Mapping, Sequence

from ddp_lab import ROOT
from ddp_lab.kit.draw.colors import GREY, RULE, text_on
from ddp_lab.kit.draw.svg import number
from ddp_lab.profiling import verdict
from figs.gallery import figure
from figs.page import Page, page

COLORS = {
    "loader": "#D55E00",
    "kernels": "#56B4E9",
    "messages": "#882255",
    "waiting": "#AEB6BF",
    "Python": "#101418",
}
"""By kind of time; the words below a drawing say which is which."""
LEFT, RIGHT, ROW = 116, 690, 30
Spans = Sequence[Sequence[float]]
Step = Mapping[str, Spans]
"""By kind, the spans [start, end] in microseconds; together they are the step."""


@figure
def five_kinds() -> Page:
    """Draw a step of two ranks, of which one loads its batch more slowly."""
    svg = page(
        "a step of two ranks",
        "All leave the all_reduce together, and rank 1 comes to it last.",
        "A step of two ranks. Rank 0: loader, a short gap of Python, kernels, "
        "waiting, messages, kernels. Rank 1: a longer loader, Python, kernels, "
        "messages, kernels. Both are in messages, and in what follows, together.",
        196,
    )
    rows = [
        [("loader", 130), ("Python", 24), ("kernels", 170), ("waiting", 100)],
        [("loader", 230), ("Python", 24), ("kernels", 170)],
    ]
    for rank, row in enumerate(rows):
        x, y = float(LEFT), 78 + 48 * rank
        svg.chip(40, y, 62, 34, rank)
        for kind, wide in [*row, ("messages", 90), ("kernels", 60)]:
            fill = COLORS[kind]
            svg.box(x, y, wide, 34, fill=fill, stroke="none", radius=0)
            if wide > 60:
                svg.label(x, y, wide, 34, kind, fill=text_on(fill))
            x += wide
    svg.text(LEFT + 230 + 12, 182, "Python", 12, fill=GREY)
    svg.line(LEFT + 424, 70, LEFT + 424, 172, stroke=GREY, dash="4 4")
    svg.text(LEFT + 424, 182, "rank 1 comes", 12, fill=GREY)
    svg.text(LEFT + 544, 182, "step()", 12, fill=GREY)
    return svg


def drawn(shown: int = 2, **folders: str) -> Page:
    """Draw the traces in these folders, each by its name."""
    return step_rows(
        {
            name.replace("_", " "): verdict.pieces(verdict.read_all([ROOT / folder]))
            for name, folder in folders.items()
        },
        shown,
    )


def step_rows(runs: Mapping[str, Sequence[Sequence[Step]]], shown: int = 2) -> Page:
    """Draw some steps of each rank of each run, all over one scale.

    Args:
        runs: by name and rank, the steps, as ddp_lab/profiling/verdict.py cuts them.
        shown: how many steps.
    """
    # The last step ends with what the profiler does.
    cut = {name: [r[-shown - 1 : -1] for r in ranks] for name, ranks in runs.items()}
    longest = max(max(map(_end, r)) - min(map(_start, r)) for r in cut.values())
    told = "; ".join(
        f"{name}: " + ", ".join(f"rank {r} {_told(s)}" for r, s in enumerate(ranks))
        for name, ranks in cut.items()
    )
    height = 84 + sum(ROW * len(ranks) + 34 for ranks in cut.values()) + 44
    svg = page(
        f"{shown} steps of each rank",
        "What each rank does, over one scale for all rows. Drawn from the traces.",
        f"Milliseconds of each kind in a step. {told}.",
        height,
    )
    top = 84.0
    for name, ranks in cut.items():
        svg.text(40, top, name, 13, anchor="start", bold=True)
        first = min(map(_start, ranks))
        for rank, steps in enumerate(ranks):
            y = top + 14 + ROW * rank
            svg.chip(40, y, 62, ROW - 6, rank)
            _draw(svg, y, steps, first, (RIGHT - LEFT) / longest)
        top += ROW * len(ranks) + 34
    svg.line(LEFT, top - 14, RIGHT, top - 14, stroke=RULE)
    svg.text(LEFT, top, "0 ms", 12, fill=GREY, anchor="start")
    svg.text(RIGHT, top, f"{longest / 1000:.0f} ms", 12, fill=GREY, anchor="end")
    for place, (kind, color) in enumerate(COLORS.items()):
        x = LEFT + 116 * place
        svg.box(x, top + 16, 14, 14, fill=color, stroke="none", radius=2)
        svg.text(x + 20, top + 23, kind, 13, anchor="start")
    return svg


def _draw(
    svg: Page, y: float, steps: Sequence[Step], first: float, scale: float
) -> None:
    """Draw the steps of one rank: a path for each kind, and a mark between steps."""
    for kind, color in COLORS.items():
        spans = [span for step in steps for span in step[kind]]
        d = "".join(
            f"M{number(LEFT + (a - first) * scale)} {number(y)}"
            f"h{number((b - a) * scale)}v{ROW - 6}h{number((a - b) * scale)}z"
            for a, b in _seen(spans, 0.4 / scale)
        )
        svg.add("path", d=d or "M0 0", fill=color)
    for step in steps:
        x = LEFT + (_start([step]) - first) * scale
        svg.line(x, y - 3, x, y + ROW - 3, stroke=GREY, width=1)


def _seen(spans: Spans, least: float) -> list[list[float]]:
    """Return the spans as they are drawn: neighbors as one, without the tiniest."""
    found: list[list[float]] = []
    for start, end in sorted((s, e) for s, e in spans):
        if found and start - found[-1][1] < least:
            found[-1][1] = end
        else:
            found.append([start, end])
    return [span for span in found if span[1] - span[0] >= least]


def _start(steps: Sequence[Step]) -> float:
    return min(a for step in steps for spans in step.values() for a, _ in spans)


def _end(steps: Sequence[Step]) -> float:
    return max(b for step in steps for spans in step.values() for _, b in spans)


def _told(steps: Sequence[Step]) -> str:
    """Say the mean milliseconds of each kind in a step."""
    means = {
        kind: sum(b - a for step in steps for a, b in step[kind]) / len(steps) / 1000
        for kind in COLORS
    }
    return " ".join(f"{kind} {mean:.0f}" for kind, mean in means.items())

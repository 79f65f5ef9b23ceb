"""The static figures of the overview: what each road cuts, and which one to take."""

from ddp_lab.kit.draw.colours import GREY, INK, PALE
from ddp_lab.kit.draw.svg import Svg, page
from ddp_lab.overview.road import OTHERWISE, RULES
from figs.gallery import figure

RANKS = 4
NAME, ROWS, WEIGHTS, TRAVELS, BAR = 40, 176, 336, 496, 144  # where columns begin
TOP, STEP, HIGH = 112, 46, 32

ROADS = (
    ("one process", "one", "one", "nothing"),
    ("DDP", "cut", "all", "gradients"),
    ("averaging", "cut", "all", "weights"),
    ("sharded", "cut", "cut", "weights, gradients"),
    ("tensor", "all", "cut", "activations, summed"),
    ("pipeline", "pass", "layers", "activations, passed on"),
    ("remote calls", "one", "layers", "activations, by rank 0"),
)


@figure
def roads() -> Svg:
    """Draw which rows and which weights each rank works with, road by road."""
    kinds = {
        "one": "rank 0 has all",
        "all": "every rank has all",
        "pass": "all pass through every rank",
        "cut": "each rank has a quarter",
        "layers": "each rank has a quarter of the layers",
    }
    told = " ".join(
        f"{name}: of the rows {kinds[rows]}, of the weights {kinds[weights]}; "
        f"what travels: {travels}."
        for name, rows, weights, travels in ROADS
    )
    svg = page(
        "seven ways to make a step",
        "Which rank has which rows and weights, and what has to travel for it.",
        f"A table of roads for four ranks. {told}",
        TOP + STEP * len(ROADS) + 16,
    )
    for x, head in ((ROWS, "rows"), (WEIGHTS, "weights"), (TRAVELS, "what travels")):
        svg.text(x, TOP - 18, head, 13, fill=GREY, anchor="start")
    for i, (name, rows, weights, travels) in enumerate(ROADS):
        y = TOP + STEP * i
        svg.text(NAME, y + HIGH / 2, name, 14, anchor="start", bold=True)
        draw_bar(svg, ROWS, y, rows)
        draw_bar(svg, WEIGHTS, y, weights)
        svg.text(TRAVELS, y + HIGH / 2, travels, 13, anchor="start")
    return svg


def draw_bar(svg: Svg, x: float, y: float, kind: str) -> None:
    """Draw who has what: rank 0, all ranks, or each a part of it."""
    if kind == "one":
        svg.block(x, y, BAR, HIGH, "rank 0", 0)
    elif kind in ("all", "pass"):
        text = "on every rank" if kind == "all" else "pass through"
        svg.shared(x, y, BAR, HIGH, [text], range(RANKS))
    else:
        part = BAR / RANKS
        for rank in range(RANKS):
            svg.block(x + part * rank, y, part - 4, HIGH, str(rank), rank)


ASK, TELL, WIDE, TALL, DOWN = 40, 404, 284, 46, 76


@figure
def road_tree() -> Svg:
    """Draw the questions of overview/road.py, and the road that each yes names."""
    told = " ".join(f"{ask} If yes: {road}. If no, go on." for ask, _, road in RULES)
    svg = page(
        "Which road?",
        "Ask in this order: the first yes names the road. Drawn from the rules.",
        f"A decision tree, from the first question to the last. {told} "
        f"After the last no: {OTHERWISE}.",
        84 + DOWN * len(RULES) + TALL + 20,
    )
    for i, (ask, _, road) in enumerate(RULES):
        y = 84 + DOWN * i
        middle, below = y + TALL / 2, y + TALL
        svg.box(ASK, y, WIDE, TALL, fill=PALE, stroke=INK)
        svg.label(ASK, y, WIDE, TALL, ask, 14)
        svg.arrow(ASK + WIDE + 2, middle, TELL - 4, middle)
        svg.text((ASK + WIDE + TELL) / 2 - 4, middle - 12, "yes", 13, fill=GREY)
        svg.box(TELL, y, 680 - TELL, TALL)
        svg.label(TELL, y, 680 - TELL, TALL, road, 14, bold=True)
        svg.arrow(ASK + WIDE / 2, below + 2, ASK + WIDE / 2, y + DOWN - 4)
        svg.text(ASK + WIDE / 2 + 20, below + 14, "no", 13, fill=GREY)
    y = 84 + DOWN * len(RULES)
    svg.box(ASK, y, WIDE, TALL)
    svg.label(ASK, y, WIDE, TALL, OTHERWISE, 14, bold=True)
    return svg

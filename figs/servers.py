"""The static figures of servers: weights that are old, a table that all want."""

from ddp_lab.kit.draw.colors import GREY, INK, RULE, WHITE
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import BAR, START, clock, lane

# Of each trainer: when its gradients begin, how long one takes, how many there are.
TRAINERS = ((0, 90, 6), (8, 95, 5), (16, 240, 2))


def pushes() -> list[tuple[int, float, float]]:
    """Return (trainer, begin, end) of all gradients, by the time when they end."""
    bars = [
        (trainer, begin + n * each, begin + (n + 1) * each)
        for trainer, (begin, each, count) in enumerate(TRAINERS)
        for n in range(count)
    ]
    return sorted(bars, key=lambda bar: bar[2])


@figure
def staleness() -> Page:
    """Draw trainers who push to a server when they are ready: how old is what comes?"""
    svg = page(
        "an asynchronous parameter server",
        "Each bar is a gradient, each circle an update. How stale is the last bar?",
        "A server and three trainers over time. Each trainer computes gradients one "
        "after the other, and the server makes an update of each as soon as it comes. "
        "Trainers 0 and 1 are fast, trainer 2 takes nearly three times as long: while "
        "it computes, the server's weights move on under it.",
        380,
    )
    svg.text(START - 20, 100, "server", 13, anchor="end", bold=True)
    svg.line(START, 100, 680, 100, stroke=RULE)
    for rank in range(len(TRAINERS)):
        lane(svg, 140 + 62 * rank, rank)
    for trainer, begin, end in pushes():
        y = 140 + 62 * trainer
        svg.line(START + end, y, START + end, 106, stroke=GREY, width=1, dash="3 3")
        x, w = START + begin, end - begin - 3
        svg.block(x, y, w, BAR, "" if w < 200 else "how stale?", trainer)
    for *_, end in pushes():
        x = START + end
        svg.add("circle", cx=x, cy=100, r=5, fill=WHITE, stroke=INK, stroke_width=2)
    clock(svg, 350)
    return svg


@figure
def table_roads() -> Page:
    """Draw a table on one server, and the same table cut by rows."""
    svg = page(
        "one table, two roads",
        "On a server all rows cross one link; cut by rows, every rank serves some.",
        "On the left an embedding table on a server: three trainers ask it for rows, "
        "and everything goes through the server's one link. On the right the table is "
        "cut by rows over four ranks: each rank asks the owners of the rows that it "
        "needs, and answers the others, by all_to_all.",
        330,
    )
    svg.text(190, 88, "on a server", 14, bold=True)
    svg.box(115, 106, 150, 62, stroke=INK)
    svg.text(190, 126, "rank 0", 13, fill=GREY)
    svg.text(190, 148, "the whole table", 13)
    for i in range(3):
        x = 70 + 120 * i
        svg.block(x - 42, 244, 84, 44, f"trainer {i}", i + 1)
        svg.arrow(x, 240, 150 + 40 * i, 174, stroke=GREY)
        svg.arrow(158 + 40 * i, 174, x + 8, 240, stroke=GREY)
    svg.text(530, 88, "cut by rows", 14, bold=True)
    places = [(400, 112), (576, 112), (400, 244), (576, 244)]
    for rank, (x, y) in enumerate(places):
        svg.block(x, y, 100, 44, f"rows of {rank}", rank)
    for i, (x, y) in enumerate(places):
        for u, v in places[i + 1 :]:
            ends = (x + 50, y + 22, u + 50, v + 22)
            svg.line(*shortened(*ends), stroke=GREY, width=2)
    return svg


def shortened(x1: float, y1: float, x2: float, y2: float) -> tuple[float, ...]:
    """Return the part of a line between two blocks that lies outside of them."""
    if y1 == y2:
        return x1 + 54, y1, x2 - 54, y2
    if x1 == x2:
        return x1, y1 + 26, x2, y2 - 26
    cut = 26 / abs(y2 - y1)
    dx, dy = (x2 - x1) * cut, (y2 - y1) * cut
    return x1 + dx, y1 + dy, x2 - dx, y2 - dy

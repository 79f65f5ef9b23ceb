"""The static figure of a restart: one rank dies, and all start again."""

from ddp_lab.kit.draw.colors import GREY, INK
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import BAR, START, clock, lane, moment

DIES, MEET, GO = 324, 404, 500  # where on the page what happens


@figure
def elastic_restart() -> Page:
    """Draw four ranks on two nodes, one of which dies, and what all do then."""
    svg = page(
        "one rank dies, all start again",
        "The others fail at their next collective; torchrun restarts them all.",
        "Four ranks over time, ranks 0 and 1 on node 0, ranks 2 and 3 on node 1. All "
        "train and save a snapshot. Then rank 3 dies, and the other three fail at "
        "their next collective. The torchruns of both nodes meet again at the "
        "rendezvous, where ranks and world size are assigned again. All four ranks "
        "begin again at the snapshot: what was done after it is done twice.",
        392,
    )
    saved = START + 108
    for rank in range(4):
        y = top(rank)
        lane(svg, y, rank)
        svg.block(START, y, saved - START, BAR, "train", rank)
        svg.block(saved, y, DIES - saved + (16 if rank < 3 else 0), BAR, "train", rank)
        svg.wait(MEET, y, GO - MEET, BAR, "rendezvous")
        svg.block(GO, y, 150, BAR, "from the snapshot", rank)
    middle = top(3) + BAR / 2
    for dy in (-9, 9):
        x = DIES + 10
        svg.line(x, middle - dy, x + 18, middle + dy, stroke=INK, width=3)
    moment(svg, saved, 76, 314, "snapshot")
    moment(svg, DIES, 76, 314, "rank 3 dies")
    svg.text(GO + 75, 326, "all begin again", 13, fill=GREY)
    clock(svg, 364)
    return svg


def top(rank: int) -> int:
    """Return where the bars of a rank begin; two ranks are a node."""
    return 84 + 50 * rank + 14 * (rank > 1)

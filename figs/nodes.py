"""The static figures of many machines: what is near and far, and a sum over both."""

from ddp_lab.kit.draw.colors import GREY, INK
from figs.gallery import figure
from figs.page import Page, page

NODES = (0, 1)
STEPS = ("reduce", "all_reduce", "broadcast")


@figure
def two_nodes() -> Page:
    """Draw two machines with two ranks each, and the wire between them."""
    svg = page(
        "two nodes, four ranks",
        "Inside a node ranks meet in memory; all that goes across shares one wire.",
        "Two machines, node 0 and node 1. On each runs one torchrun, which starts two "
        "ranks: ranks 0 and 1 on node 0, ranks 2 and 3 on node 1, with local ranks 0 "
        "and 1 on both. The ranks of a node are joined by a short thick line, called "
        "memory. A thin line joins the nodes, called the wire; torchruns and ranks all "
        "use it.",
        330,
    )
    for node in NODES:
        x = 40 + 370 * node
        svg.box(x, 84, 270, 212, fill="none", dash="6 5")
        svg.text(x + 16, 102, f"node {node}", 13, fill=GREY, anchor="start")
        svg.block(x + 75, 106, 120, 34, "torchrun", mono=True)
        for local in (0, 1):
            left, rank = x + 20 + 130 * local, 2 * node + local
            svg.arrow(x + 110 + 50 * local, 144, left + 50, 170, stroke=GREY)
            svg.chip(left, 174, 100, 34, rank)
            svg.text(left + 50, 226, f"local rank {local}", 13, fill=GREY)
        svg.line(x + 120, 191, x + 150, 191, stroke=INK, width=8)
        svg.path(f"M{x + 70} 240v14h130v-14", stroke=GREY)
        svg.text(x + 135, 272, "meet in memory", 13)
    svg.line(310, 191, 410, 191, stroke=INK, width=2)
    svg.text(360, 172, "the wire", 14, bold=True)
    svg.text(360, 212, "shared by all", 13, fill=GREY)
    return svg


@figure
def two_levels() -> Page:
    """Draw an all_reduce in three steps: inside the nodes, across, inside again."""
    svg = page(
        "a sum on two levels",
        "Inside, across, inside: only the leaders use the wire.",
        "Four ranks with the tensors A, B, C and D; ranks 0 and 1 are on node 0, ranks "
        "2 and 3 on node 1. First a reduce inside each node: rank 0 holds A+B, rank 2 "
        "holds C+D. Then an all_reduce of these two ranks across the wire: both hold "
        "A+B+C+D. Last a broadcast inside each node: all four hold A+B+C+D.",
        392,
    )
    held = ("A", "B", "C", "D")
    after = (
        held,
        ("A+B", "", "C+D", ""),
        ("A+B+C+D", "", "A+B+C+D", ""),
        ("A+B+C+D",) * 4,
    )
    for node in NODES:
        y = 96 + 138 * node
        svg.box(30, y - 12, 660, 126, fill="none", dash="6 5")
        svg.text(44, y, f"node {node}", 12, fill=GREY, anchor="start")
    for rank in range(4):
        y = 108 + 46 * rank + 46 * (rank // 2)
        svg.chip(44, y, 62, 34, rank)
        for column, texts in enumerate(after):
            x = 122 + 150 * column
            if texts[rank]:
                svg.block(x, y, 96, 34, texts[rank], rank)
    for node in NODES:
        y = 108 + 138 * node
        svg.arrow(220, y + 56, 268, y + 24)  # to the leader
        svg.arrow(220, y + 17, 268, y + 17)
        svg.arrow(520, y + 17, 568, y + 17)  # from the leader
        svg.arrow(520, y + 24, 568, y + 56)
    svg.arrow(395, 150, 395, 242, width=2)
    svg.arrow(395, 236, 395, 146, width=2)
    svg.text(408, 180, "the wire", 13, anchor="start", bold=True)
    for x, step in zip((244, 395, 544), STEPS, strict=True):
        svg.text(x, 366, step, 13, mono=True)
    return svg

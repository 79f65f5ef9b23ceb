"""The static figures of one transformer block that is cut over two ranks."""

from ddp_lab.kit.draw.colors import GREY, INK
from figs.gallery import figure
from figs.page import Page, page

TOP, LANE, APART = 116, 52, 16  # the upper lane; the height of one; between the two
TALL = 2 * LANE + APART
HEADS, RANKS, CELL = 12, 4, 17


@figure
def block_shares() -> Page:
    """Draw what two ranks hold of a block: whole norms, shares of all Linears."""
    svg = page(
        "what each rank holds of a block",
        "Two colors below a box: every rank has all of it. One color: a share.",
        "One transformer block on two ranks, from left to right. Every rank has the "
        "whole x, both norms, and both additions of what a part returns to x. Of "
        "query, key, value and out rank 0 has the heads 0 to 5 and rank 1 the heads 6 "
        "to 11. Of up and down rank 0 has the first half of the hidden features and "
        "rank 1 the second half.",
        300,
    )
    draw_block(svg, "", "")
    note = "query, key, value, up: by columns.   out, down: by rows."
    svg.text(40, 272, note, 13, fill=GREY, anchor="start")
    return svg


@figure
def block_conjugate() -> Page:
    """Draw the same block with f in front of each pair of cuts, and g behind it."""
    svg = page(
        "f in front of each pair, g behind it",
        "Between f and g each rank works on its share; elsewhere all do the same work.",
        "The same block on two ranks, with f in front of the attention and g behind "
        "it, and f in front of the MLP and g behind it. The norms, the additions and "
        "x, which are whole on every rank, stand outside. f passes x on forward and "
        "sums the gradient by all_reduce backward. g sums by all_reduce forward and "
        "passes the gradient on backward.",
        322,
    )
    draw_block(svg, "f", "g")
    legend(svg, ("passes x on", "all_reduce"), ("all_reduce", "passes it on"))
    return svg


@figure
def block_sequence() -> Page:
    """Draw the same block with the sequence cut wherever no weight is cut."""
    svg = page(
        "cut by features inside, by positions outside",
        "Outside of f and g each rank now has half of the positions, and all features.",
        "The same block on two ranks. Outside of the pairs, where every rank did the "
        "same work, rank 0 now has x, norms and additions for the first half of the "
        "text's positions, and rank 1 for the second half. f gathers all positions "
        "forward by all_gather, and backward sums and deals out by reduce_scatter. g "
        "does reduce_scatter forward and all_gather backward.",
        322,
    )
    draw_block(svg, "f", "g", by_places=True)
    ways = "all_gather", "reduce_scatter"
    legend(svg, ways, ways[::-1])
    return svg


def legend(svg: Page, f: tuple[str, str], g: tuple[str, str]) -> None:
    """Write what f and g do forward and backward."""
    for y, name, (forward, backward) in ((272, "f", f), (296, "g", g)):
        svg.text(40, y, name, 14, anchor="start", bold=True)
        svg.text(64, y, f"forward: {forward}", 13, fill=GREY, anchor="start")
        svg.text(264, y, f"backward: {backward}", 13, fill=GREY, anchor="start")


def draw_block(svg: Page, f: str, g: str, by_places: bool = False) -> None:
    """Draw x, and two times: norm, f, the shares, g, and the addition to x."""
    x = 36
    draw_whole(svg, x, 30, "x", by_places)
    for parts in (("heads 0–5", "heads 6–11"), ("first half", "second half")):
        draw_around(svg, x)
        draw_whole(svg, x + 43, 50, "norm", by_places)
        for start in (x + 31, x + 94, x + 274):
            draw_step(svg, start, by_places)
        if f:
            svg.shared(x + 105, TOP, 24, TALL, [f], (0, 1))
            svg.shared(x + 249, TOP, 24, TALL, [g], (0, 1))
        name = "attention" if "heads" in parts[0] else "MLP"
        svg.text(x + 189, TOP - 14, name, 13, bold=True)
        near, far = (130, 248) if f else (106, 272)
        for rank, part in enumerate(parts):
            y = TOP + rank * (LANE + APART)
            svg.arrow(x + near, y + LANE / 2, x + 140, y + LANE / 2, size=6)
            svg.block(x + 141, y, 96, LANE, part, rank)
            svg.arrow(x + 238, y + LANE / 2, x + far, y + LANE / 2, size=6)
        x += 285
        draw_whole(svg, x, 30, "+", by_places)
    draw_step(svg, x + 31, by_places)


def draw_step(svg: Page, x: float, by_places: bool) -> None:
    """Draw the arrow to the next box: one, or one for each rank's positions."""
    middles = (LANE / 2, LANE * 1.5 + APART) if by_places else (TALL / 2,)
    for middle in middles:
        svg.arrow(x, TOP + middle, x + 11, TOP + middle, size=6)


def draw_whole(svg: Page, x: float, w: float, text: str, by_places: bool) -> None:
    """Draw what every rank has whole, or has for its own positions."""
    if not by_places:
        svg.shared(x, TOP, w, TALL, [text], (0, 1))
        return
    for rank in (0, 1):
        svg.block(x, TOP + rank * (LANE + APART), w, LANE, text, rank)


def draw_around(svg: Page, x: float) -> None:
    """Draw the way of x around a pair, to the addition behind it."""
    over = TOP - 30
    svg.path(f"M{x + 22} {TOP - 2}V{over}H{x + 293}V{TOP - 8}", stroke=INK)
    svg.head(x + 293, TOP - 2, 0, 1, size=6)


@figure
def fused_weight() -> Page:
    """Draw the heads of a fused weight, cut over four ranks in both ways."""
    svg = page(
        "one weight for query, key and value, on four ranks",
        "Each cell is a head's rows, in the order in which they are stored.",
        "The rows of a fused weight: twelve heads of queries, then twelve of keys, "
        "then twelve of values, colored by the rank that gets them. Cut straight, rank "
        "0 gets nine heads of queries; rank 1 three of queries and six of keys; rank 2 "
        "six of keys and three of values; rank 3 nine of values. Cut by heads, each "
        "rank gets three heads of queries, the same three of keys, and the same three "
        "of values.",
        292,
    )
    for kind, name in enumerate(("query", "key", "value")):
        svg.text(54 + CELL * HEADS * (kind + 0.5), 92, name, 13, bold=True)
    for y, name in ((108, "straight"), (198, "by heads")):
        for row in range(3 * HEADS):
            rank = row * RANKS // (3 * HEADS)
            if name == "by heads":
                rank = row % HEADS * RANKS // HEADS
            x = 54 + CELL * row
            svg.block(x, y, CELL, 34, str(row % HEADS), rank)
        for kind in range(4):
            x = 54 + CELL * HEADS * kind
            svg.line(x, y - 4, x, y + 38, stroke=INK, width=2)
        svg.text(54, y + 54, f"cut {name}", 13, fill=GREY, anchor="start")
    for rank in range(RANKS):
        svg.chip(420 + 62 * rank, 244, 56, 22, rank)
    return svg

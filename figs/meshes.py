"""The static figures of DTensors: placements, what changes them, and a mesh."""

from ddp_lab.kit.draw.colors import GREY, INK, PALE, rank_color, tint
from figs.gallery import figure
from figs.page import Page, page

WHOLE = [[1, 2], [3, 4], [5, 6], [7, 8]]
SUMMANDS = ([[1, 0], [2, 3], [4, 1], [0, 5]], [[0, 2], [1, 1], [1, 5], [7, 3]])
CELL = 34


@figure
def placements() -> Page:
    """Draw one matrix on two ranks under each placement."""
    svg = page(
        "one matrix on two ranks",
        "The placement says how the local parts make the whole.",
        "One matrix of four rows and two columns on two ranks, under four placements. "
        "Replicate: each rank holds all of it. Shard(0): rank 0 holds the first two "
        "rows, rank 1 the last two. Shard(1): rank 0 holds the first column, rank 1 "
        "the second. Partial: each rank holds a matrix of full size, and the two add "
        "up to the whole.",
        330,
    )
    names = ("Replicate()", "Shard(0)", "Shard(1)", "Partial()")
    notes = ("both have all", "rows", "columns", "add them up")
    for i, (name, note) in enumerate(zip(names, notes, strict=True)):
        x = 36 + 168 * i
        svg.text(x + 72, 92, name, 14, bold=True, mono=True)
        svg.text(x + 72, 310, note, 13, fill=GREY)
        for rank in (0, 1):
            svg.chip(x + 74 * rank, 112, 68, 24, rank)
            draw_part(svg, x + 74 * rank, 148, name, rank)
    return svg


def draw_part(svg: Page, x: float, y: float, name: str, rank: int) -> None:
    """Draw what one rank holds; dotted cells are elsewhere."""
    held = SUMMANDS[rank] if name == "Partial()" else WHOLE
    for i, row in enumerate(held):
        for j, value in enumerate(row):
            cut = {"Shard(0)": i // 2, "Shard(1)": j}.get(name, rank)
            place = x + CELL * j, y + CELL * i, CELL, CELL
            if cut != rank:
                svg.box(*place, dash="3 3", radius=0)
                continue
            color = rank_color(rank)
            svg.box(*place, fill=tint(color), stroke=color, radius=0)
            svg.label(*place, str(value))


@figure
def placement_changes() -> Page:
    """Draw which collective leads from one placement to another."""
    svg = page(
        "what a change of placement costs",
        "A rank receives this share of the whole tensor, on n ranks, over a ring.",
        "Partial, Replicate and Shard as three boxes with an arrow for each change. "
        "Partial to Replicate: all_reduce, a rank receives 2 (n - 1) / n of the "
        "tensor. Partial to Shard: reduce_scatter, (n - 1) / n. Shard to Replicate: "
        "all_gather, (n - 1) / n. Shard to another Shard: all_to_all, (n - 1) / n of "
        "a shard. Replicate to Shard: nothing is sent.",
        350,
    )
    boxes = {"Partial()": (40, 96), "Replicate()": (540, 96), "Shard(i)": (290, 250)}
    for name, (x, y) in boxes.items():
        svg.box(x, y, 140, 52, fill=PALE, stroke=INK)
        svg.label(x, y, 140, 52, name, 14, bold=True, mono=True)
    svg.arrow(184, 122, 536, 122, width=2)
    svg.text(360, 106, "all_reduce", 14, mono=True)
    svg.text(360, 140, "2 (n − 1) / n", 13, fill=GREY)
    svg.arrow(120, 152, 286, 268, width=2)
    svg.text(190, 230, "reduce_scatter", 14, anchor="end", mono=True)
    svg.text(190, 250, "(n − 1) / n", 13, fill=GREY, anchor="end")
    svg.arrow(434, 262, 590, 152, width=2)
    svg.text(404, 200, "all_gather", 14, mono=True)
    svg.text(404, 220, "(n − 1) / n", 13, fill=GREY)
    svg.arrow(640, 152, 434, 290, width=2, dash="5 4")
    svg.text(570, 232, "nothing is sent", 13, fill=GREY, anchor="start")
    svg.path("M330 306C330 340 390 340 390 308", width=2)
    svg.head(390, 304, 0, -1)
    svg.text(404, 324, "all_to_all", 14, anchor="start", mono=True)
    svg.text(498, 324, "(n − 1) / n of a shard", 13, fill=GREY, anchor="start")
    return svg


@figure
def mesh() -> Page:
    """Draw four ranks on two nodes, with the groups of both dimensions."""
    svg = page(
        'mesh_dim_names=("data", "tensor"), shape (2, 2)',
        "Neighbors share a tensor group; a data group takes one rank of each node.",
        "Two nodes of two ranks. The tensor groups, ranks 0 and 1 and ranks 2 and 3, "
        "lie inside a node each. The data groups, ranks 0 and 2 and ranks 1 and 3, "
        "cross from node to node.",
        330,
        mono=True,
    )
    for node in (0, 1):
        y = 84 + 122 * node
        svg.box(150, y, 420, 92, fill=PALE)
        svg.text(40, y + 46, f"node {node}", 14, anchor="start", bold=True)
        for column in (0, 1):
            rank = 2 * node + column
            svg.chip(180 + 240 * column, y + 28, 120, 36, rank)
        svg.line(304, y + 46, 416, y + 46, width=3)
        svg.text(360, y + 30, "tensor", 13, mono=True)
    for column in (0, 1):
        x = 240 + 240 * column
        svg.line(x, 150, x, 232, width=3, dash="6 4")
        svg.text(x + 12, 191, "data", 13, anchor="start", mono=True)
    svg.text(360, 316, "solid: inside a node; dashed: between nodes", 13, fill=GREY)
    return svg

"""The figure of fully_shard: a GPT in groups, and what happens to a group."""

from ddp_lab.kit.draw.colors import GREY, rank_color
from figs.gallery import figure
from figs.page import Page, page

ROOT, BLOCK = ("tokens, head", "positions", "norm"), ("norms", "attention", "MLP")
STATES = (
    ("at rest", "its piece"),
    ("all_gather", "all pieces"),
    ("it computes", "all pieces"),
    ("freed", "its piece"),
)


@figure
def shard_groups() -> Page:
    """Draw the groups of a GPT, cut for four ranks, and the life of one group."""
    svg = page(
        "a GPT in five groups on four ranks",
        "Each weight is cut along its first dimension; a group travels in one message.",
        "A GPT in five groups. The root group has the token weight, which embedding "
        "and output share, the positions and the last norm. Each of four blocks is "
        "a group. Every weight of every group is cut along its first dimension into "
        "four pieces, one for each rank. Below, the life of a group: each rank "
        "holds its piece; an all_gather lends it the others; the group computes; "
        "the others are freed; a reduce_scatter leaves each rank its piece of the "
        "gradient.",
        400,
    )
    for column in range(5):
        name = f"block {column - 1}" if column else "the root"
        draw_group(svg, 40 + 130 * column, name, BLOCK if column else ROOT)
    svg.text(360, 274, "one group in a step, as rank 1 sees it", 13, fill=GREY)
    for i, (name, held) in enumerate(STATES):
        draw_state(svg, 40 + 174 * i, name, held)
    svg.text(
        360,
        380,
        "after backward: reduce_scatter, and rank 1 has its piece of the mean gradient",
        13,
    )
    return svg


def draw_group(svg: Page, x: float, name: str, weights: tuple[str, ...]) -> None:
    """Draw the weights of one group, each in the pieces of four ranks."""
    svg.box(x, 78, 120, 176, dash="5 4")
    svg.text(x + 60, 94, name, 13, bold=True, anchor="middle")
    for i, weight in enumerate(weights):
        y = 106 + 48 * i
        svg.text(x + 60, y + 8, weight, 12, anchor="middle")
        for rank in range(4):
            svg.block(x + 8 + 26 * rank, y + 18, 26, 20, str(rank), rank)


def draw_state(svg: Page, x: float, name: str, held: str) -> None:
    """Draw which pieces of a group rank 1 holds at one moment."""
    svg.text(x + 60, 298, name, 13, bold=True, anchor="middle")
    for rank in range(4):
        if rank == 1 or held != "its piece":
            svg.block(x + 8 + 26 * rank, 312, 26, 24, str(rank), rank)
        else:
            svg.box(x + 8 + 26 * rank, 312, 26, 24, stroke=rank_color(rank), dash="3 3")
    svg.text(x + 60, 352, held, 12, fill=GREY, anchor="middle")
    if x < 500:
        svg.arrow(x + 124, 324, x + 168, 324, width=2)

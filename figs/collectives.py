"""The static figures of the collectives: what four ranks hold before and after."""

import textwrap
from collections.abc import Callable, Sequence

from ddp_lab.kit.draw.colors import (
    GREY,
    INK,
    RANK_COLORS,
    RULE,
    WHITE,
    rank_color,
    tint,
)
from ddp_lab.kit.draw.values import Cell, Column, cell_width, spoken
from figs.gallery import figure
from figs.page import Page, page

LETTERS = "ABCD"
ALL = range(4)
WIDTH, TOP, LEFT = 720, 116, 40
NARROW, EDGE = 496, 16  # of a collective: two fit beside each other in JupyterLab
LETTERS_A_LINE = 58
NODE = 15  # radius of the circle in which values are added

Held = Callable[[int], str]  # a rank's cells
Flow = tuple[int, int]  # from this rank, to that rank
Middle = Callable[[Page, float, float], None]  # draws from one column to the other


def cells(held: str) -> list[Cell]:
    """Read the cells of a rank: "A0 B0+C0" is one value from A and one from B and C.

    The letter says whose tensor a value comes from: A is rank 0's, B rank 1's.
    """
    return [
        Cell(text, tuple(rank for rank in ALL if LETTERS[rank] in text))
        for text in held.split()
    ]


def rows(held: Held) -> list[list[Cell]]:
    """Read what each of the four ranks holds."""
    return [cells(held(rank)) for rank in ALL]


def center(rank: int) -> float:
    """Return the height of the middle of a rank's box."""
    return TOP + 50 * rank + 20


def curve(svg: Page, x1: float, y1: float, x2: float, y2: float, color: str) -> None:
    """Draw a calm line that leaves and arrives level."""
    half = (x1 + x2) / 2
    d = f"M{x1:g} {y1:g}C{half:g} {y1:g} {half:g} {y2:g} {x2:g} {y2:g}"
    svg.path(d, stroke=color, width=2)


def flow(svg: Page, x1: float, y1: float, x2: float, y2: float, color: str) -> None:
    """Draw such a line with an arrow's head at its end."""
    curve(svg, x1, y1, x2 - 6, y2, color)
    svg.head(x2, y2, 1, 0, fill=color)


def draw_flows(svg: Page, x1: float, x2: float, flows: Sequence[Flow]) -> None:
    """Draw who sends to whom, in the colors of the senders."""
    for source, target in flows:
        shared = sum(to == target for _, to in flows) > 1
        y2 = center(target) + (9 * (source - 1.5) if shared else 0)
        flow(svg, x1, center(source), x2, y2, rank_color(source))


def draw_sum(
    svg: Page,
    x1: float,
    x2: float,
    sources: Sequence[int],
    targets: Sequence[int],
    center: Callable[[int], float] = center,
) -> None:
    """Draw values that meet in a plus sign, and the sum that leaves it."""
    x, y = (x1 + x2) / 2, sum(map(center, sources)) / len(sources)
    for rank in sources:
        curve(svg, x1, center(rank), x, y, rank_color(rank))
    for rank in targets:
        flow(svg, x, y, x2, center(rank), GREY)
    svg.add("circle", cx=x, cy=y, r=NODE, fill=WHITE, stroke=INK, stroke_width=1.5)
    svg.line(x - 6, y, x + 6, y, width=2)
    svg.line(x, y - 6, x, y + 6, width=2)


def exchange(
    call: str, says: str, names: str, before: Held, after: Held, draw_middle: Middle
) -> Page:
    """Draw a collective.

    `names` are those of the tensors before and after ("x x" where it works in place);
    `before` and `after` give the cells of a rank as a string.
    """
    (name1, name2), left, right = names.split(), rows(before), rows(after)
    desc = f"{says} Before: {spoken(left)}. After: {spoken(right)}."
    svg = Page(call, desc, NARROW, TOP + 206)
    svg.text(EDGE, 28, call, 16, anchor="start", mono=True)
    for i, line in enumerate(textwrap.wrap(says, LETTERS_A_LINE)):
        svg.text(EDGE, 54 + 20 * i, line, 14, fill=GREY, anchor="start")
    first = Column(f"before: {name1}", left, cell_width(left))
    second = Column(f"after: {name2}", right, cell_width(right))
    x2 = NARROW - EDGE - second.width
    first.draw(svg, EDGE, TOP)
    second.draw(svg, x2, TOP)
    draw_middle(svg, EDGE + first.width + 6, x2 - 6)
    return svg


def moves(flows: Sequence[Flow]) -> Middle:
    """Return what draws these flows between the columns."""
    return lambda svg, x1, x2: draw_flows(svg, x1, x2, flows)


def sums(sources: Sequence[int], targets: Sequence[int]) -> Middle:
    """Return what draws a sum of `sources` that goes to `targets`."""
    return lambda svg, x1, x2: draw_sum(svg, x1, x2, sources, targets)


@figure
def broadcast() -> Page:
    """Draw one tensor copied to all ranks."""
    return exchange(
        "dist.broadcast(x, src=0)",
        "Rank 0's tensor overwrites the tensor of every other rank.",
        "x x",
        lambda rank: LETTERS[rank],
        lambda rank: "A",
        moves([(0, rank) for rank in ALL]),
    )


@figure
def scatter() -> Page:
    """Draw a list of pieces of which each rank receives one."""
    return exchange(
        "dist.scatter(piece, pieces, src=0)",
        "Rank 0 deals out a list: piece r goes to rank r.",
        "pieces piece",
        lambda rank: "" if rank else "A0 A1 A2 A3",
        lambda rank: f"A{rank}",
        moves([(0, rank) for rank in ALL]),
    )


@figure
def gather() -> Page:
    """Draw one tensor of each rank collected on one rank."""
    return exchange(
        "dist.gather(x, received, dst=0)",
        "Rank 0 collects a list: entry r is what rank r holds.",
        "x received",
        lambda rank: LETTERS[rank],
        lambda rank: "" if rank else "A B C D",
        moves([(rank, 0) for rank in ALL]),
    )


@figure
def reduce() -> Page:
    """Draw the sum of all ranks on one rank."""
    return exchange(
        "dist.reduce(x, dst=0)",
        "Rank 0 holds the sum. On the others, x is left undefined: do not read it.",
        "x x",
        lambda rank: LETTERS[rank],
        lambda rank: "?" if rank else "A+B+C+D",
        sums(ALL, [0]),
    )


@figure
def all_reduce() -> Page:
    """Draw the sum of all ranks on all ranks."""
    return exchange(
        "dist.all_reduce(x)",
        "Every rank holds the sum of all.",
        "x x",
        lambda rank: LETTERS[rank],
        lambda rank: "A+B+C+D",
        sums(ALL, ALL),
    )


@figure
def all_gather() -> Page:
    """Draw one tensor of each rank collected on all ranks."""
    return exchange(
        "dist.all_gather(received, x)",
        "All collect the same list: entry r is what rank r holds.",
        "x received",
        lambda rank: LETTERS[rank],
        lambda rank: "A B C D",
        moves([(source, rank) for source in ALL for rank in ALL]),
    )


@figure
def reduce_scatter() -> Page:
    """Draw the sum of all ranks, of which each rank keeps one piece."""
    return exchange(
        "dist.reduce_scatter(piece, pieces)",
        "All lists are added; rank r keeps only piece r of the sum.",
        "pieces piece",
        lambda rank: " ".join(f"{LETTERS[rank]}{piece}" for piece in ALL),
        lambda rank: "+".join(f"{letter}{rank}" for letter in LETTERS),
        sums(ALL, ALL),
    )


@figure
def all_to_all() -> Page:
    """Draw each rank dealing out its list to all ranks."""
    return exchange(
        "dist.all_to_all(received, pieces)",
        "Every rank deals out its list: piece r goes to rank r. Rows become columns.",
        "pieces received",
        lambda rank: " ".join(f"{LETTERS[rank]}{piece}" for piece in ALL),
        lambda rank: " ".join(f"{letter}{rank}" for letter in LETTERS),
        moves([(source, rank) for source in ALL for rank in ALL]),
    )


@figure
def groups() -> Page:
    """Draw the even and the odd ranks, each group adding among its own members."""
    says = "Every rank creates both groups; each sum stays inside its own group."
    held = "ranks 0 and 2 hold A+C, ranks 1 and 3 hold B+D"
    desc = f"{says} Before, ranks 0 to 3 hold A, B, C, D; after, {held}."
    svg = page("dist.all_reduce(x, group=mine)", says, desc, 386, mono=True)
    draw_group(svg, [0, 2], 118)
    draw_group(svg, [1, 3], 268)
    return svg


def draw_group(svg: Page, members: list[int], y: float) -> None:
    """Draw the sum over the members of a group, in a frame of their own."""
    total = "+".join(LETTERS[rank] for rank in members)
    svg.box(LEFT - 16, y - 32, WIDTH - 2 * LEFT + 32, 134, fill="none", dash="6 5")
    svg.text(WIDTH / 2, y - 14, f"dist.new_group({members})", 13, mono=True)
    for place, rank in enumerate(members):
        left, right = [cells(LETTERS[rank])], [cells(total)]
        top = y + 50 * place
        before = Column("before: x" * (place == 0), left, cell_width(left), rank)
        after = Column("after: x" * (place == 0), right, cell_width(right), rank)
        before.draw(svg, LEFT, top)
        after.draw(svg, WIDTH - LEFT - after.width, top)
    x1, x2 = LEFT + before.width + 8, WIDTH - LEFT - after.width - 8
    heights = [y + 20 + 50 * place for place in range(len(members))]
    by_rank = dict(zip(members, heights, strict=True))
    draw_sum(svg, x1, x2, members, members, lambda rank: by_rank[rank])


@figure
def ring_pieces() -> Page:
    """Draw an all_reduce over a ring, step by step: which pieces hold whose sum."""
    svg = page(
        "all_reduce round a ring, in pieces",
        "In each step every rank passes one piece to its right neighbor.",
        "Four ranks, each with four pieces, over six steps. A number says how many "
        "ranks' values are in a piece; at the start all are 1. In steps 1 to 3 each "
        "rank adds the piece that comes from its left neighbor to its own, so that "
        "after step 3 rank 0 holds the sum of all four in its piece 1, rank 1 in piece "
        "2, rank 2 in piece 3 and rank 3 in piece 0. In steps 4 to 6 the finished "
        "pieces go around, and at the end all pieces are 4 on every rank.",
        412,
    )
    for (first, last), name in {(1, 3): "reduce_scatter", (4, 6): "all_gather"}.items():
        x1, x2 = STEP_X + STEP * first, STEP_X + STEP * (last + 1) - 14
        svg.path(f"M{x1} 104v-8h{x2 - x1}v8", stroke=GREY)
        svg.text((x1 + x2) / 2, 84, name, 13, mono=True)
    counts = [[1] * 4 for _ in ALL]
    fresh: list[int | None] = [None] * 4  # the piece that has just come, by rank
    for step in range(7):
        if step:
            fresh = [(rank - step) % 4 for rank in ALL]
            pass_on(counts, fresh, add=step <= 3)
        x = STEP_X + STEP * step
        svg.text(x + 34, 118, f"step {step}" if step else "start", 13, fill=GREY)
        for rank in ALL:
            draw_pieces(svg, x, 136 + 52 * rank, counts[rank], fresh[rank])
    for rank in ALL:
        svg.chip(40, 136 + 52 * rank, 64, 34, rank)
    notes = (
        "A number says how many ranks' values are in the piece; 4 is the finished sum.",
        "A thick frame: this piece has just come from the left neighbor.",
    )
    for i, note in enumerate(notes):
        svg.text(40, 362 + 22 * i, note, 13, fill=GREY, anchor="start")
    return svg


STEP_X, STEP = 124, 83  # where the start is drawn, and how far each step is from it


def pass_on(counts: list[list[int]], fresh: list[int | None], *, add: bool) -> None:
    """Let piece `fresh[rank]` come to each rank from its left neighbor."""
    came = [counts[rank - 1][piece or 0] for rank, piece in enumerate(fresh)]
    for rank, piece in enumerate(fresh):
        counts[rank][piece or 0] = came[rank] + counts[rank][piece or 0] * add


def draw_pieces(
    svg: Page, x: float, y: float, counts: list[int], fresh: int | None
) -> None:
    """Draw the four pieces of one rank side by side, darker the more they hold."""
    for piece, count in enumerate(counts):
        left, new = x + 17 * piece, piece == fresh
        fill = tint(RANK_COLORS[2], (0, 0.25, 0.5, 0.9)[count - 1])
        pen = {"stroke": INK if new else RULE, "width": 2.5 if new else 1}
        svg.box(left, y, 17, 34, fill=fill, radius=2, **pen)
        svg.text(left + 8.5, y + 17, str(count), 13, bold=count == 4)

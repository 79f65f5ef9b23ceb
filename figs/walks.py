"""Collectives step by step: what four ranks hold, and what has just been sent."""

from collections.abc import Callable, Sequence

from ddp_lab.kit.draw.colors import INK, RULE, rank_color
from ddp_lab.kit.draw.values import Cell
from figs import exchanges
from figs.exchanges import Held, Message, Plan, Value
from figs.gallery import stepper
from figs.page import Page
from figs.step_by_step import Steps

N, LETTERS = 4, "ABCD"
WIDE, LEFT, CHIP, HIGH, PITCH = 392, 10, 56, 34, 46
CELL, GAP, ALL = 46, 3, 4 * 49 - 3  # a piece, what is between two, a whole tensor
MOVED = {"stroke": INK, "width": 2.5}

START = "Four ranks, each with a tensor: A is rank 0's, B rank 1's, and so on."
IN_PIECES = "Four ranks, each with a tensor in four pieces: A0 to A3 are rank 0's."


def walk(
    name: str,
    title: str,
    plan: Plan,
    held: Held,
    says: Sequence[str],
    node: int = 0,
) -> Steps:
    """Draw what the ranks hold at the start of a plan and after each of its steps.

    `says` has a sentence for the start and for each step; ranks share a frame with the
    others of their `node`, if that is a number of ranks.
    """
    states = exchanges.play(held, plan)
    pictures = [
        draw(says[at], state, plan[at - 1] if at else [], node)
        for at, state in enumerate(states)
    ]
    return Steps(name, title, pictures)


def draw(says: str, held: Held, step: Sequence[Message], node: int) -> Page:
    """Draw what each rank holds, and on the right the messages that have led there."""
    words = "; ".join(
        f"rank {rank} {', '.join(map(written, row))}" for rank, row in enumerate(held)
    )
    sent = ", ".join(f"{m.source} to {m.target}" for m in step)
    sent = f"Sent from rank {sent}. " if step else ""
    svg = Page(says, f"{sent}Held: {words}.", WIDE, 14 + PITCH * N)
    for first in range(0, N, node or N):
        if node:
            top, high = 5 + PITCH * first, PITCH * node - 4
            svg.box(3, top, LEFT + CHIP + ALL + 13, high, fill="none", dash="5 4")
    new = {(m.target, place) for m in step for place in landed(m)}
    for rank, row in enumerate(held):
        svg.chip(LEFT, 10 + PITCH * rank, CHIP, HIGH, rank)
        for place, value in enumerate(row):
            draw_value(svg, rank, place, len(row), value, (rank, place) in new)
    for message in step:
        draw_message(svg, message.source, message.target)
    return svg


def landed(message: Message) -> range:
    """Return the places of its target in which the pieces of a message are then."""
    at = message.first if message.at is None else message.at
    return range(at, at + message.last - message.first)


def written(value: Value | None) -> str:
    """Write what lies in a place: A0 is rank 0's piece 0, AB the sum of two pieces."""
    if not value:
        return "–"
    letters = "".join(LETTERS[rank] for rank in sorted(value.ranks))
    return letters if len(letters) > 1 or value.piece < 0 else f"{letters}{value.piece}"


def draw_value(
    svg: Page, rank: int, place: int, places: int, value: Value | None, new: bool
) -> None:
    """Draw one place of a rank."""
    wide = (ALL + GAP) / places - GAP
    x, y = LEFT + CHIP + 6 + place * (wide + GAP), 10 + PITCH * rank
    if value:
        text = "+".join(written(value)) if places == 1 else written(value)
        Cell(text, tuple(sorted(value.ranks))).draw(svg, x, y, wide, HIGH)
        if new:
            svg.box(x, y, wide, HIGH, fill="none", radius=3, **MOVED)
    else:
        svg.box(x, y, wide, HIGH, stroke=RULE, width=1, radius=3, dash="3 3")


def draw_message(svg: Page, source: int, target: int) -> None:
    """Draw an arc from one rank to another, in the color of the first."""
    x = LEFT + CHIP + ALL + 14
    y1, y2 = (10 + PITCH * rank + HIGH / 2 for rank in (source, target))
    y1, y2 = y1 + 6, y2 - 6
    out = x + 24 + 29 * abs(source - target) + 12 * (target < source)
    d = f"M{x:g} {y1:g}C{out:g} {y1:g} {out:g} {y2:g} {x + 6:g} {y2:g}"
    svg.path(d, stroke=rank_color(source), width=2.5)
    svg.head(x, y2, -1, 0, fill=rank_color(source), size=9)


def tensors(places: int = 1) -> Held:
    """Return four whole tensors, one for each rank, in each of so many places."""
    return [[Value(frozenset([rank]), -1)] * places for rank in range(N)]


def pieces() -> Held:
    """Return four tensors of four pieces."""
    return exchanges.own(N, N)


def kept(keep: Callable[[int, int], bool], held: Held | None = None) -> Held:
    """Return the pieces that ranks have at the start."""
    return exchanges.only(held or pieces(), keep)


# --- the collectives of lesson 2 ---


@stepper
def broadcast() -> Steps:
    """Draw a tensor that spreads in a tree."""
    return walk(
        "broadcast",
        "broadcast in a tree",
        exchanges.broadcast(N),
        kept(lambda rank, piece: rank == 0, tensors()),
        [
            "Rank 0 has a tensor, A; what the others have does not matter.",
            "Rank 0 sends it to rank 2.",
            "Both send it on: 2 steps for 4 ranks, 3 for 8, 10 for 1,024.",
        ],
    )


@stepper
def reduce() -> Steps:
    """Draw sums that grow towards rank 0."""
    return walk(
        "reduce",
        "reduce in a tree",
        exchanges.tree(N),
        tensors(),
        [
            START,
            "Neighbors first: ranks 0 and 2 add what their neighbors send.",
            "Rank 2 sends its sum of two, and rank 0 has all four. "
            "What the other ranks hold now is of no use.",
        ],
    )


@stepper
def all_reduce() -> Steps:
    """Draw pairs that swap sums, so that all end with the whole one."""
    return walk(
        "all_reduce",
        "all_reduce by doubling",
        exchanges.doubling(N),
        tensors(),
        [
            START,
            "Neighbors swap their tensors, and each adds what comes to its own.",
            "Pairs swap their sums of two: now all ranks hold the sum of four. "
            "Each has sent the whole tensor twice, which is fine if it is small.",
        ],
    )


@stepper
def scatter() -> Steps:
    """Draw a list that is dealt out."""
    return walk(
        "scatter",
        "scatter",
        exchanges.scatter(N),
        kept(lambda rank, piece: rank == 0),
        [
            "Rank 0 has a list of four pieces, A0 to A3; piece 0 is its own.",
            "Piece 1 goes to rank 1.",
            "Piece 2 goes to rank 2.",
            "Piece 3 goes to rank 3. All messages leave from rank 0, one by one.",
        ],
    )


@stepper
def gather() -> Steps:
    """Draw pieces that are collected."""
    return walk(
        "gather",
        "gather",
        exchanges.gather(N),
        kept(lambda rank, piece: rank == piece, tensors(N)),
        [
            "Each rank has one tensor, and rank 0 has room for all of them.",
            "Rank 1 sends its tensor to rank 0.",
            "Rank 2 sends its own.",
            "Rank 3 sends its own. All messages arrive at rank 0, one by one.",
        ],
    )


@stepper
def all_gather() -> Steps:
    """Draw pieces that go round a ring."""
    return walk(
        "all_gather",
        "all_gather round a ring",
        exchanges.all_gather(N),
        kept(lambda rank, piece: rank == piece, tensors(N)),
        [
            "Each rank has one tensor, and room for all four.",
            "Every rank sends its tensor to the right; rank 3's right is rank 0.",
            "Every rank sends on what has just come.",
            "And once more: all hold all, after 3 steps in which each rank sent one "
            "tensor and received one.",
        ],
    )


@stepper
def reduce_scatter() -> Steps:
    """Draw partial sums that go round a ring."""
    return walk(
        "reduce_scatter",
        "reduce_scatter round a ring",
        exchanges.reduce_scatter(N),
        pieces(),
        [
            IN_PIECES,
            "Every rank sends one piece to the right, which adds it to its own: "
            "AD is the sum of A's and D's piece.",
            "Every rank sends on the sum that it has just made.",
            "After 3 steps piece r of the sum is finished on rank r. "
            "The partial sums beside it are thrown away.",
        ],
    )


@stepper
def all_to_all() -> Steps:
    """Draw lists whose rows become columns."""
    return walk(
        "all_to_all",
        "all_to_all in pairs",
        exchanges.all_to_all(N),
        pieces(),
        [
            "Each rank has a list of four pieces: piece q is for rank q. "
            "Piece r of rank r stays.",
            "Ranks 0 and 1 swap the pieces that they have for each other, 2 and 3 too.",
            "Ranks 0 and 2 swap, and 1 and 3.",
            "Ranks 0 and 3 swap, and 1 and 2. Rows have become columns.",
        ],
    )


@stepper
def barrier() -> Steps:
    """Draw who knows of whom that it has come."""
    return walk(
        "barrier",
        "barrier: who knows who has come",
        exchanges.barrier(N),
        tensors(),
        [
            "All four ranks have come to the barrier, and each knows that of itself: "
            "A means that rank 0 is here.",
            "Every rank tells the one to its right.",
            "Every rank tells the one two further on what it knows. "
            "Now each knows that all are here, and goes on.",
        ],
    )


# --- an all-reduce in five ways ---


def five_ways(name: str, title: str, says: Sequence[str], node: int = 0) -> Steps:
    """Draw one of the five."""
    plan = exchanges.whole(exchanges.ALL_REDUCES[name](N))
    count = exchanges.pieces(plan)
    held = exchanges.own(N, count) if count > 1 else tensors()
    return walk(f"sum_{name}", title, plan, held, says, node)


@stepper
def sum_to_root() -> Steps:
    """Draw all tensors on their way to rank 0, and the sum on its way back."""
    return five_ways(
        "to_root",
        "1 · to a root and back",
        [
            START,
            "Rank 1 sends its whole tensor to rank 0.",
            "Rank 2 sends its own.",
            "Rank 3 sends its own, and rank 0 has the sum.",
            "Rank 0 sends the sum to rank 3,",
            "to rank 2,",
            "and to rank 1: 2(n − 1) steps, each with the whole tensor.",
        ],
    )


@stepper
def sum_tree() -> Steps:
    """Draw sums that grow in a tree, and go back through it."""
    return five_ways(
        "tree",
        "2 · a tree",
        [
            START,
            "Ranks 1 and 3 send their tensors to their neighbors.",
            "Rank 2 sends its sum of two: rank 0 has all four.",
            "The same way back: rank 0 sends the sum to rank 2,",
            "and both send it on: 2 log₂ n steps, each with the whole tensor.",
        ],
    )


@stepper
def sum_ring() -> Steps:
    """Draw pieces that go round a ring twice."""
    return five_ways(
        "ring",
        "3 · a ring, in pieces",
        [
            IN_PIECES,
            "Every rank sends one piece to the right, which adds it to its own.",
            "Every rank sends on the sum that it has just made.",
            "After n − 1 steps each rank has one finished piece of the sum, ABCD.",
            "Back the other way: every rank sends its finished piece to the left,",
            "sends on what has just come,",
            "and once more: 2(n − 1) steps, each with an nth of the tensor.",
        ],
    )


@stepper
def sum_halving() -> Steps:
    """Draw pairs that swap halves, then quarters, and back."""
    return five_ways(
        "halving",
        "4 · halving and doubling",
        [
            IN_PIECES,
            "Neighbors swap halves: each adds the half that it keeps.",
            "Ranks two apart swap halves of that: each has a finished quarter.",
            "The same way back: they swap their quarters,",
            "and neighbors swap halves: 2 log₂ n steps, "
            "with a half, a quarter, ... of the tensor.",
        ],
    )


@stepper
def sum_two_level() -> Steps:
    """Draw sums inside nodes, then a ring of their first ranks."""
    return five_ways(
        "two_level",
        "5 · two levels",
        [
            "Two nodes of two ranks; between nodes the wire is slow. "
            "A tensor has as many pieces as there are nodes.",
            "In each node, all send to the first rank. That wire is fast.",
            "The first ranks of the nodes are a ring: half a tensor each way,",
            "and the finished halves back.",
            "In each node, the first rank tells the others: "
            "only the ring has used the slow wire.",
        ],
        node=2,
    )

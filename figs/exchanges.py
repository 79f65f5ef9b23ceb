"""Collectives as plans of messages: which rank sends which pieces to which, and when.

A plan is a list of steps, a step a list of messages that travel at the same time.
`play` says what every rank holds after each step; the steppers draw it, and the costs
of book/costs.py are held against it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Message(NamedTuple):
    """Pieces that one rank sends to another."""

    source: int
    target: int
    first: int
    """Of the pieces that are sent,"""
    last: int
    """and the one behind them."""
    adds: bool = True
    """To what the target holds, or replaces that."""
    at: int | None = None
    """Where the first of them goes, if it is not where it came from."""


class Value(NamedTuple):
    """What lies in one place of a rank: a piece, summed over some ranks."""

    ranks: frozenset[int]
    piece: int


Step = Sequence[Message]
Plan = Sequence[Step]
Held = list[list[Value | None]]
"""By rank, what lies in each of its places."""

# --- an all-reduce in five ways: the first half sums, and `whole` returns the sum ---


def to_root(n: int) -> list[list[Message]]:
    """Let the others send all to rank 0, one after another."""
    return [[Message(rank, 0, 0, 1)] for rank in range(1, n)]


def tree(n: int) -> list[list[Message]]:
    """Add up neighbors, then neighbors of those that are left, and so on."""
    distances = [2**k for k in range((n - 1).bit_length())]
    pairs = [[(r, r - d) for r in range(d, n, 2 * d)] for d in distances]
    return [[Message(*pair, 0, 1) for pair in step] for step in pairs]


def ring(n: int) -> list[list[Message]]:
    """Send n pieces to the right, all at the same time; each rank adds its own."""
    return [
        [Message(r, (r + 1) % n, (r - s) % n, (r - s) % n + 1) for r in range(n)]
        for s in range(n - 1)
    ]


def halving(n: int) -> list[list[Message]]:
    """Swap halves in pairs: each keeps the sum of one, then of half of that, ..."""
    power = 2 ** (n.bit_length() - 1)  # as many ranks as can be halved to the end
    steps = [[Message(r, r - power, 0, power) for r in range(power, n)]]
    spans = [(0, power)] * power  # by rank, the pieces that it still adds up
    for distance in (2**k for k in range(power.bit_length() - 1)):
        steps.append([])
        for r, (first, last) in enumerate(spans):
            middle = (first + last) // 2
            halves = [(first, middle), (middle, last)]
            mine = bool(r & distance)
            steps[-1].append(Message(r, r ^ distance, *halves[not mine]))
            spans[r] = halves[mine]
    return [step for step in steps if step]


def two_level(n: int, size: int = 2) -> list[list[Message]]:
    """Let the ranks of a node of `size` send to its first; these are a ring."""
    leaders = range(0, n, size)
    steps = [
        [Message(r, r // size * size, 0, len(leaders)) for r in range(i, n, size)]
        for i in range(1, size)
    ]
    for step in ring(len(leaders)):
        steps.append(
            [Message(m.source * size, m.target * size, m.first, m.last) for m in step]
        )
    return steps


def whole(half: Plan) -> list[list[Message]]:
    """Return a plan that sums, then the same messages backwards with the sum."""
    back = [[Message(b, a, i, j, False) for a, b, i, j, *_ in step] for step in half]
    return [list(step) for step in half] + back[::-1]


ALL_REDUCES: dict[str, Callable[[int], list[list[Message]]]] = {
    "to_root": to_root,
    "tree": tree,
    "ring": ring,
    "halving": halving,
    "two_level": two_level,
}

# --- one way to do each of the other collectives ---


def broadcast(n: int) -> list[list[Message]]:
    """Let every rank that has it send it on: a tree backwards."""
    return whole(tree(n))[len(tree(n)) :]


def scatter(n: int) -> list[list[Message]]:
    """Let rank 0 deal out its pieces, one after another."""
    return [[Message(0, r, r, r + 1, False)] for r in range(1, n)]


def gather(n: int) -> list[list[Message]]:
    """Let rank 0 collect the pieces, one after another."""
    return [[Message(r, 0, r, r + 1, False)] for r in range(1, n)]


def all_gather(n: int) -> list[list[Message]]:
    """Send what has come last to the right, n - 1 times."""
    return [
        [Message(r, (r + 1) % n, (r - s) % n, (r - s) % n + 1, False) for r in range(n)]
        for s in range(n - 1)
    ]


def reduce_scatter(n: int) -> list[list[Message]]:
    """Send partial sums to the right; rank r ends with piece r."""
    return [
        [
            Message(r, (r + 1) % n, (r - s - 1) % n, (r - s - 1) % n + 1)
            for r in range(n)
        ]
        for s in range(n - 1)
    ]


def doubling(n: int) -> list[list[Message]]:
    """Let pairs swap all that they have and add it: n is a power of two."""
    return [
        [Message(r, r ^ 2**k, 0, 1) for r in range(n)]
        for k in range((n - 1).bit_length())
    ]


def all_to_all(n: int) -> list[list[Message]]:
    """Let pairs swap what they have for each other: n is a power of two."""
    return [
        [Message(r, r ^ k, r ^ k, (r ^ k) + 1, False, r) for r in range(n)]
        for k in range(1, n)
    ]


def barrier(n: int) -> list[list[Message]]:
    """Tell a rank further and further to the right who has come."""
    return [
        [Message(r, (r + 2**k) % n, 0, 1) for r in range(n)]
        for k in range((n - 1).bit_length())
    ]


# --- what follows from a plan ---


def play(held: Held, plan: Plan) -> list[Held]:
    """Return what the ranks hold at the start and after each step.

    Raises:
        ValueError: if a rank sends what it has not, or counts a rank twice.
    """
    states = [held]
    for step in plan:
        before, after = states[-1], [list(row) for row in states[-1]]
        for message in step:
            for piece in range(message.first, message.last):
                came = before[message.source][piece]
                at = piece if message.at is None else message.at
                there = before[message.target][at] if message.adds else None
                if came is None or (there and there.ranks & came.ranks):
                    raise ValueError(f"{message}: {came} on {there}")
                ranks = came.ranks | there.ranks if there else came.ranks
                after[message.target][at] = Value(ranks, came.piece)
        states.append(after)
    return states


def pieces(plan: Plan) -> int:
    """Return into how many pieces a plan cuts a tensor."""
    return max((message.last for step in plan for message in step), default=1)


def own(n: int, count: int) -> Held:
    """Return what ranks hold that have a tensor of `count` pieces each."""
    return [[Value(frozenset([r]), piece) for piece in range(count)] for r in range(n)]


def only(held: Held, keep: Callable[[int, int], bool]) -> Held:
    """Return `held` without the pieces that a rank is not told to keep."""
    return [
        [value if keep(rank, piece) else None for piece, value in enumerate(row)]
        for rank, row in enumerate(held)
    ]

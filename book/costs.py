"""What an all-reduce costs, in five ways: seconds by formula, and by its messages.

A message of s bytes takes α + β·s seconds: α is the latency, β the seconds of a byte.
A step takes as long as its slowest message; the messages of a step do not share a wire.
The formulas are for ranks and nodes in powers of two; play.js draws them, and
`seconds` works them out from the plans that the steppers draw, message by message.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from figs.exchanges import Plan, pieces


class Wire(NamedTuple):
    """What carries a message."""

    alpha: float
    """Seconds of latency."""
    beta: float
    """Seconds of a byte."""

    def takes(self, size: float) -> float:
        """Return the seconds of a message of `size` bytes."""
        return self.alpha + self.beta * size


def seconds(plan: Plan, size: float, inside: Wire, across: Wire, node: int) -> float:
    """Return how long a plan takes, with nodes of so many ranks each."""
    piece = size / pieces(plan)
    return sum(
        max(
            (inside if m.source // node == m.target // node else across).takes(
                piece * (m.last - m.first)
            )
            for m in step
        )
        for step in plan
    )


def formulas(
    n: int, size: float, inside: Wire, across: Wire, node: int
) -> Mapping[str, float]:
    """Return how long each of the five ways takes for n ranks, in nodes of `node`."""
    nodes, near = n // node, round(math.log2(node))
    far = round(math.log2(nodes))
    fast, slow = inside.takes(size), across.takes(size)
    ring = 2 * (n - 1) * (across if nodes > 1 else inside).takes(size / n)
    halves = sum(inside.takes(size / 2**k) for k in range(1, near + 1))
    halves += sum(across.takes(size / 2**k) for k in range(near + 1, near + far + 1))
    leaders = 2 * (nodes - 1) * across.takes(size / nodes)
    return {
        "to_root": 2 * ((node - 1) * fast + (n - node) * slow),
        "tree": 2 * (near * fast + far * slow),
        "ring": ring,
        "halving": 2 * halves,
        "two_level": 2 * (node - 1) * fast + leaders,
    }

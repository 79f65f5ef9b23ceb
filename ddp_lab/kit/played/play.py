"""The door to the machine room: runs on nodes that this machine plays."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddp_lab.kit.played import events as happens
from ddp_lab.kit.played import plan
from ddp_lab.kit.record import names
from ddp_lab.kit.run import options as of
from ddp_lab.kit.run.here import Here
from ddp_lab.kit.run.options import Option
from ddp_lab.kit.run.result import RunFailed

ROOM = Path(__file__).with_name("room.py")
Machine = tuple[dict[str, str], list[Option], list[str]]
"""What is typed on one: variables, torchrun's options, and a program."""


class Played(Here):
    """A run on nodes that this machine plays (room.py).

    Args:
        typed: one command that is meant for all nodes, or one for each of them.
        events: what happens to the nodes, and when (events.py).
        rate: that of each node's link, say "100mbit".
        delay: that of each node's link, one way, say "5ms".
        how: as of `Here`.
    """

    starter = "nodes"

    def __init__(
        self,
        typed: Machine | Sequence[Machine],
        events: Sequence[str] = (),
        rate: str = "",
        delay: str = "",
        **how: Any,
    ):
        one = typed if isinstance(typed, tuple) else None
        machines = [one] * of.nodes(one[1])[1] if one else [*typed]
        happening = _happening([own for _, own, _ in machines], events, rate, delay)
        if any(of.has(own, of.NO_PYTHON) for _, own, _ in machines):
            said = "on several nodes the ranks are Python programs, without --no-python"
            raise RunFailed(f"the launcher: {said}", None)
        super().__init__([], **how)
        made = plan.make(one[1], one[2], one[0], **happening) if one else None
        self.plan = asdict(made or plan.by_hand(machines, **happening))
        self.waits_for_nodes = True

    def command(self, python: list[str]) -> list[str]:
        """Leave the plan; return the command that carries it out."""
        whole = json.dumps(self.plan | {"python": python})
        (self.folder / names.PLAN).write_text(whole)
        return [sys.executable, "-IS", str(ROOM), str(self.folder)]


def _happening(
    machines: Sequence[list[Option]], events: Sequence[str], rate: str, delay: str
) -> dict:
    """Return what happens to the nodes, of torchrun's options on each."""
    if len(machines) > plan.MOST_NODES:
        said = f"one machine plays up to {plan.MOST_NODES} nodes, not {len(machines)}"
        raise RunFailed(f"the launcher: {said}", None)
    try:
        happens.parse_all(events, len(machines), plan.most_ranks(machines))
        return {
            "events": list(events),
            "rate": happens.rate(rate) if rate else 0.0,
            "delay": happens.span(delay) if delay else 0.0,
        }
    except ValueError as error:
        raise RunFailed(f"the launcher: {error}", None) from None

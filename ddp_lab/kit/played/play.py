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
from ddp_lab.kit.run import options as opts
from ddp_lab.kit.run.here import Here
from ddp_lab.kit.run.options import Option
from ddp_lab.kit.run.result import refused

ROOM = Path(__file__).with_name("room.py")


class Played(Here):
    """A run on nodes that this machine plays (room.py).

    Args:
        options: those of torchrun, meant for all nodes.
        program: the program and its arguments.
        env: variables for each node.
        events: what happens to the nodes, and when (events.py).
        rate: that of each node's link, say "100mbit".
        how: as of `Here`.
    """

    starter = "nodes"

    def __init__(
        self,
        options: list[Option],
        program: list[str],
        env: dict[str, str],
        events: Sequence[str] = (),
        rate: str = "",
        **how: Any,
    ):
        happening = _happening(options, events, rate)
        if opts.has(options, opts.NO_PYTHON):
            why = "on several nodes the ranks are Python programs, without --no-python"
            raise refused(why)
        super().__init__([], **how)
        self.plan = asdict(plan.make(options, program, env, **happening))

    def command(self, python: list[str]) -> list[str]:
        """Leave the plan; return the command that carries it out."""
        whole = json.dumps(self.plan | {"python": python})
        (self.folder / names.PLAN).write_text(whole)
        return [sys.executable, "-IS", str(ROOM), str(self.folder)]


def _happening(options: list[Option], events: Sequence[str], rate: str) -> dict:
    """Return what happens to the nodes, of which torchrun's options tell how many."""
    _, count = opts.nodes(options)
    if count > plan.MOST_NODES:
        raise refused(f"one machine plays up to {plan.MOST_NODES} nodes, not {count}")
    try:
        happens.parse_all(events, count)
        bits = happens.rate(rate) if rate else 0.0
        return {"events": list(events), "rate": bits}
    except ValueError as error:
        raise refused(str(error)) from None

"""Launch from a cell: as `whichrank` does, but warm, and on nodes that we play.

Who starts whom tells the docstring of `whichrank.launch`. A run on several nodes, which
this machine plays, has one torchrun for each of them, and a process in between:

    guard       of whichrank
     |  starts, with the mark of the run
    room        played/room.py  -- makes a network for each node (network.py), if it may
     |  starts for each node, inside its network, with the mark of the node
    proxy       of whichrank, and all that is below it
"""

import sys
from collections.abc import Sequence
from typing import Any

import whichrank
from ddp_lab.kit.played.play import Playing
from whichrank import COLD, PLACES, Choose, Run, Starter, Warm, environment, refused

WARM = Warm()
"""The fork server of this process, a kernel or `make lab`, and of all its runs."""


def torchrun(
    command: str | Sequence[str],
    *,
    cold: bool = False,
    starter: Starter | None = None,
    events: Sequence[str] = (),
    rate: str = "",
    **how: Any,
) -> Run:
    """Run `torchrun COMMAND`; see `whichrank.torchrun`, which takes `how`.

    Args:
        command: torchrun's own arguments, one string or a list.
        cold: import torch anew in every process, as a terminal does.
        starter: the fork server of a warm start, if not `WARM`.
        events: what happens to a run on several nodes, and when (played/events.py).
        rate: that of each node's link, say "100mbit".
        how: see `whichrank.torchrun`.

    With `--nnodes 2`, or `1:2`, and neither a node's rank nor an address, this machine
    plays the nodes, unless we run in a SLURM job that has them.
    """
    slurm, here = PLACES
    play = Playing(events, rate)
    if events or rate:
        if not whichrank.Command.parse(command).is_for_all:
            raise refused("events and a rate are for several nodes: --nnodes 2")
        places: list[Choose] = [play]
    else:
        places = [slurm, play, here]
    starter = COLD if cold else starter or WARM
    return whichrank.torchrun(command, starter=starter, places=places, **how)


def python(command: str | Sequence[str], *, cold: bool = False, **how: Any) -> Run:
    """Run `python COMMAND`; see `whichrank.python`, which takes `how`."""
    return whichrank.python(command, starter=COLD if cold else WARM, **how)


def warm_python() -> str:
    """Return a Python that has imported torch already; our own if there is none."""
    return WARM.python(environment()) or sys.executable

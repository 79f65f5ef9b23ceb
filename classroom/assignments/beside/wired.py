"""The judge's side of wire.py: a run whose last rank is the machine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from classroom.engine.rig import Outcome, Rig

ALL = "all_reduce", "broadcast", "all_gather", "gather"
LAUNCH_BYTES = 300_000  # that the launch itself sends over the loopback, at most


def wired(
    rig: Rig,
    given: list[dict],
    timeout: float = 20,
    machine: Mapping[str, Any] | None = None,
    calls: Sequence[str] = ALL,
) -> tuple[Outcome, list[dict]]:
    """Run a program on one rank for each of `given`; return also the machine's diary:
    {"what": "messages", "rank": ..., "to": ..., "count": ..., "bytes": ...} for each
    two ranks, and what else `Machine` notes, such as each "call".

    What goes past the wire goes over the loopback, where the kernel counts: such a run
    has failed, whatever it ends with.

    Args:
        given: the inputs by rank.
        machine: arguments of `Machine`, and whether results are `lazy`.
        calls: the collective calls that the wire carries, beside a barrier.
    """
    ranks = len(given)
    about = {"ranks": ranks, "calls": [*calls], **(machine or {})}
    inputs = [{"machine": about} | one for one in [*given, {}]]
    outcome = rig.run(ranks + 1, inputs, timeout=timeout)
    failure = outcome.failure
    if failure:  # where the machine stood is nothing to the student
        stands = rf"\n  (?:rank {ranks}: )?[^\n]*wire\.py:[^\n]*"
        late = rf"rank {ranks}: has not come, and |, rank {ranks} stands in the check.*"
        failure = re.sub(f"{stands}|{late}", "", failure)
    if (size := outcome.bytes_on_wire or 0) > LAUNCH_BYTES:
        failure = failure or f"{size:,} bytes went another way than over the wire"
    *events, diary = outcome.events
    outputs = outcome.outputs[:ranks]
    return replace(outcome, outputs=outputs, events=events, failure=failure), diary

"""Mistakes that people make, each put into a program: none may go unnoticed.

A program that keeps quiet with one of these in it teaches nothing, so this file is the
proof that the checks in the programs can fail.
"""

from dataclasses import dataclass

import pytest

from ddp_lab.kit import torchrun, variant


@dataclass(frozen=True)
class Mistake:
    """One change to one program, after which a run must fail."""

    name: str
    program: str
    old: str
    new: str
    arguments: str = ""
    ranks: int = 2


MISTAKES = [
    Mistake(
        "send to the wrong neighbour",
        "ddp_lab/p2p_ring.py",
        "(rank - 1) % world_size, (rank + 1) % world_size",
        "(rank + 1) % world_size, (rank - 1) % world_size",
        ranks=3,
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_mistake_is_caught(mistake):
    path = variant(mistake.program, mistake.old, mistake.new)
    command = f"--nproc-per-node {mistake.ranks} {path} {mistake.arguments}"
    run = torchrun(command, timeout=20, expect_failure=True)
    assert run.failure.kind in ("exception", "timeout"), run.failure.report()

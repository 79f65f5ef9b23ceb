"""Machines that fail: a rendezvous that lives elsewhere, a world that shrinks."""

import pytest
from conftest import RESTARTS
from support import FULL

from ddp_lab.kit import torchrun
from ddp_lab.kit.played import plan
from whichrank import Command

RANGE = "--nnodes 1:2 --nproc-per-node 2"
PLACE = f"{RANGE} --rdzv-endpoint 127.0.0.1:29400"


def test_a_rendezvous_that_no_node_hosts_is_named_alike_on_all():
    words = f"{PLACE} --rdzv-conf is_host=0,last_call_timeout=2 program.py"
    command = Command.parse(words)
    assert command.is_for_all
    made = plan.make(command, [], 0.0)
    assert made.elsewhere == "127.0.0.1:29400"
    assert made.typed[0] == made.typed[1] and "is_host=0" in str(made.typed[0])
    assert "is_host=1" not in str(made.on_loopback)


def test_a_rendezvous_that_some_node_hosts_is_the_command_of_one_node():
    assert not Command.parse(PLACE).is_for_all
    assert not Command.parse(f"{PLACE} --rdzv-conf is_host=1").is_for_all
    assert Command.parse(RANGE).elsewhere == ""


@FULL
@pytest.mark.processes
def test_a_world_that_shrinks_is_told_by_the_ranks_that_are_left(tmp_path):
    quick = "last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3"
    options = f"--nnodes 1:2 --nproc-per-node 2 {RESTARTS['elastic/survive.py']}"
    program = f"ddp_lab/elastic/survive.py --dir {tmp_path} --pause 0.05"
    run = torchrun(
        f"{options} --rdzv-conf {quick} {program}",
        timeout=60,
        events=['rank 0 says "step 10": kill node 1'],
    )
    assert len(run.lines) == 2 and run["worlds"][0][-1] == 2
    assert run["worlds"][0][9] == 4 and max(run["apart"]) < 1e-5
    assert not [note for note in run.notes if "removed" in note]

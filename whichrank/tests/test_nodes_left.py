"""What nodes leave of a run: read, and explained. And commands for several nodes."""

import json
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from left import Left, comings_and_goings

from whichrank.explain import nodes as explain_nodes
from whichrank.explain.attempts import compare
from whichrank.explain.causes.ended import Raised, Signalled, Stopped
from whichrank.explain.causes.node import (
    NodeFailed,
    NodeLost,
    NodesChanged,
    NodesMissing,
    NodesNotMet,
    OwnLoopback,
)
from whichrank.explain.failure import Failure
from whichrank.explain.find import find_failure
from whichrank.record import agents
from whichrank.record.lives import by_attempt, changes, lives
from whichrank.record.logs import TorchrunLog, rank_folders
from whichrank.record.plan import Event
from whichrank.record.stacks import Frame
from whichrank.run.command import PORT, Command
from whichrank.run.here import Here
from whichrank.run.limits import Limits
from whichrank.run.live import LiveRun
from whichrank.run.starter import COLD


@pytest.fixture
def left(tmp_path) -> Left:
    return Left(tmp_path)


@pytest.mark.parametrize(
    "command, for_all",
    [
        ("--nnodes 2", True),
        ("--nnodes 1:2", True),
        ("--nnodes=3", True),
        ("--nnodes 1", False),
        ("--nproc-per-node 2", False),
        ("--nnodes 2 --node-rank 0", False),
        ("--nnodes 2 --node_rank=0", False),
        ("--nnodes 2 --master-addr node0", False),
        ("--nnodes 2 --rdzv-endpoint node0", False),
        ("--nnodes 2 --rdzv_endpoint=node0", False),
        ("--nnodes 2 --rdzv-backend c10d", True),
        ("--nnodes many", False),
    ],
)
def test_a_command_that_names_no_node_is_for_all_of_them(command, for_all):
    assert Command.parse(command).is_for_all == for_all


@pytest.mark.parametrize(
    "command, at, backend",
    [
        ("--nnodes 2", "127.0.0.1:29500", "static"),
        ("--nnodes 2 --master-addr a --master-port 1", "a:1", "static"),
        ("--nnodes 2 --rdzv-endpoint a", "a:29400", "c10d"),
        ("--nnodes 2 --rdzv-endpoint a:1", "a:1", "c10d"),
        (f"--nnodes 2 --master-addr a --master-port {PORT}", "a", "static"),
        (f"--nnodes 2 --rdzv-endpoint a:{PORT}", "a", "c10d"),
    ],
)
def test_where_a_node_looks_for_the_others(command, at, backend):
    meets = Command.parse(command).meets()
    assert (meets.at, meets.backend) == (at, backend)
    assert (meets.nnodes, meets.rank) == ("2", "0")


def test_ranks_are_read_by_their_global_number(left):
    left.life(1, 0, 0, 10.0)
    left.life(0, 0, 1, 10.1)
    assert [path.parents[1].name for path in rank_folders(left.folder)] == [
        "node_1",
        "node_0",
    ]
    log = TorchrunLog.read(left.folder)
    assert [rank.lines for rank in log.ranks] == [
        ["[rank 0] at 10.0"],
        ["[rank 1] at 10.1"],
    ]
    assert log.places == {0: "node 1, local 0", 1: "node 0, local 0"}


def test_a_rank_that_has_not_come_has_its_place_in_the_list(left):
    left.life(0, 0, 0, 10.0, size=3)
    left.life(1, 0, 2, 10.0, size=3)
    assert [rank.lines for rank in TorchrunLog.read(left.folder).ranks] == [
        ["[rank 0] at 10.0"],
        [],
        ["[rank 2] at 10.0"],
    ]


def test_attempts_are_counted_over_all_nodes(left):
    comings_and_goings(left)
    found = lives(left.folder, since=1.0)
    assert [len(attempt) for attempt in by_attempt(found)] == [2, 1, 2, 2]
    how = [life.how for life in found]
    assert how[:3] == ["exit code 1", "SIGKILL", "asked to end"]
    assert found[1].end == 4.0
    found = [(change.lost, change.come) for change in changes(left.folder)]
    assert found == [((1,), ()), ((), (1,)), ((), ())]


def test_an_attempt_that_ended_because_a_node_came_has_not_failed():
    ended = NodesChanged(come=(1,))
    failed = Signalled(rank=1, code=-9)
    found = compare([ended, failed])
    assert found and found.ways == (((1,), ended), ((2,), failed))


def test_attempts_that_failed_alike_on_different_ranks_name_each():
    ends = [Signalled(rank=r, frame=Frame("a.py", 3, "f"), code=-9) for r in (0, 1)]
    first, second = ends
    found = compare([first, second, first], second)
    assert found and found.ways == (((1, 3), first), ((2,), second))
    assert found.same, "it is one bug, on whichever rank"


def test_attempts_that_differ_in_code_line_or_words_are_several_faults():
    first = Raised(rank=1, frame=Frame("a.py", 3, "f"), error="ValueError: step 7")
    others = [
        replace(first, frame=Frame("a.py", 4, "f")),
        replace(first, error="KeyError: 7"),
    ]
    for other in others:
        found = compare([first, other], other)
        assert found and len(found.ways) == 2 and not found.same
    found = compare([first, replace(first, error="ValueError: step 12")], first)
    assert found and len(found.ways) == 1, "a step is no difference"


def told(left: Left, stopped: str | None = "timeout") -> Failure:
    failure, _ = find_failure(TorchrunLog.read(left.folder), 1, stopped, 5.0)
    assert failure
    return failure


def test_a_node_that_was_killed_is_named_and_not_its_ranks(left):
    left.plan()
    left.life(0, 0, 0, 1.0, 5.2, code=1)
    left.life(1, 0, 1, 1.0, 5.0, code=-9)
    left.write(
        "node_1/exit.json",
        {"code": -9, "time": 5.0, "event": {"verb": "kill", "node": 1}},
    )
    failure = told(left, None)
    assert (type(failure.why), failure.node, failure.rank) == (NodeLost, 1, None)
    assert (failure.why.ranks, failure.why.code) == ((1,), -9)
    assert failure.means == "by the event `kill node 1`"


def test_the_rendezvous_goes_with_the_node_that_holds_it(left):
    left.plan()
    left.life(0, 0, 0, 1.0, 5.0, code=-9)
    left.life(1, 0, 1, 1.0, 5.2, code=1)
    left.agent(0, -9, at=5.0)
    failure = told(left, None)
    assert (type(failure.why), failure.node) == (NodeLost, 0)
    assert failure.means == "the others have lost the rendezvous with it"


def test_a_rank_that_was_killed_a_moment_before_its_node_is_named(left):
    left.plan()
    left.life(0, 0, 0, 1.0, 5.2, code=1)
    left.life(1, 0, 1, 1.0, 4.99, code=-9)
    left.write(
        "node_1/exit.json",
        {"code": -9, "time": 5.0, "event": {"verb": "kill", "node": 1}},
    )
    failure = told(left, None)
    assert (failure.rank, failure.why.code) == (1, -9)
    assert failure.places[1] == "node 1, local 0"


def test_a_rank_that_failed_before_its_node_was_killed_is_named(left):
    left.plan()
    left.life(0, 0, 0, 1.0, 3.0, code=3)
    left.life(1, 0, 1, 1.0, 5.0, code=-9)
    left.write(
        "node_1/exit.json",
        {"code": -9, "time": 5.0, "event": {"verb": "kill", "node": 1}},
    )
    failure = told(left, None)
    assert (failure.rank, failure.why.code) == (0, 3)


def test_a_node_that_was_lost_in_an_earlier_attempt_is_not_blamed(left):
    left.plan()
    left.life(0, 0, 0, 1.0, 3.0, code=1)
    left.life(1, 0, 1, 1.0, 2.9, code=-9)
    left.write(
        "node_1/exit.json",
        {"code": -9, "time": 2.9, "event": {"verb": "kill", "node": 1}},
    )
    left.happened(Event("kill", 1, 2.8))
    left.life(0, 0, 0, 9.0, 11.0, code=7, size=1)
    failure = told(left, None)
    assert (failure.rank, failure.why.code) == (0, 7)
    assert failure.attempts.ways == (((1,), NodesChanged(gone=(1,))),)


def test_nodes_that_do_not_meet(left):
    left.plan()
    failure = told(left)
    assert isinstance(failure.why, NodesNotMet)
    assert (failure.rank, failure.node) == (None, None)
    assert [type(also) for also in failure.also] == [Stopped]


def test_a_port_that_is_taken_is_no_matter_of_the_network(left):
    left.plan()
    error = "E: The server socket has failed to listen. port: 1, code: -98, EADDRINUSE"
    left.write("node_0/err", f"Traceback (most recent call last):\n{error}\n")
    left.agent(0, 1, at=5.0)
    found, _ = find_failure(TorchrunLog.read(left.folder), 1, None, 5.0)
    assert found and (found.node, found.symptom) == (0, "port taken")


def test_an_agent_that_is_ended_with_a_silent_run_has_not_gone(left):
    """SLURM kills the agents of a run that stands still."""
    left.plan()
    for node in (0, 1):
        left.life(node, 0, node, 1.0)
    halted = LiveRun("torchrun", place := Here([], COLD), Limits())
    place._folder = left.folder
    halted.standing = TorchrunLog.read(left.folder)
    killed = {"code": -9, "time": 9.0}
    left.write("node_0/exit.json", killed)
    failure, _ = find_failure(halted._read(final=True), 1, "timeout", 5.0)
    assert failure and failure.kind == "timeout"


def test_what_a_rank_says_after_we_were_interrupted_twice_is_our_own_doing(tmp_path):
    """The second interrupt comes while we still look, so nothing was seen before."""
    home = tmp_path / "run" / "attempt_0" / "0"
    home.mkdir(parents=True)
    halted = LiveRun("torchrun", place := Here([], COLD), Limits())
    place._folder = tmp_path

    def interrupted(*args) -> None:
        raise KeyboardInterrupt

    def looks() -> None:  # which takes a while, and a rank complains
        end = {"code": 5, "time": time.time(), "asked": False}
        (home / "exit.json").write_text(json.dumps(end))
        raise KeyboardInterrupt

    child = SimpleNamespace(hurry=lambda: None, end=lambda: -15, since=time.time() + 9)
    vars(place).update(wait=lambda tell: None, start=lambda: child, look=looks)
    vars(halted).update(_wait=interrupted)
    failure = halted._run(None).failure
    assert failure and (failure.kind, failure.rank) == ("interrupt", None)


def test_a_node_whose_torchrun_was_asked_to_end_from_outside_is_named(left):
    """It obeys SIGTERM, and its exit code is 1."""
    left.plan()
    left.life(0, 0, 0, 1.0, 5.4, code=1)
    left.life(1, 0, 1, 1.0, 5.1, code=-15, asked=5.0)
    said = "torch.distributed.elastic.multiprocessing.api.SignalException: "
    left.write("node_1/err", f"{said}Process 7 got signal: 15\n")
    left.agent(1, 1, at=5.2)
    failure = told(left, None)
    why = failure.why
    assert (type(why), why.node, why.ranks) == (NodeLost, 1, (1,))
    assert why.code == -signal.SIGTERM
    # A launcher that ends the rest of a run sends it, too.
    left.agent(0, 1, at=5.1)
    assert told(left, None).node != 1


def test_what_torchrun_says_of_itself_is_told_of_its_node(left):
    left.plan()
    error = 'Traceback (most recent call last):\n  File "a", line 1\nOSError: no\n'
    left.write("node_1/err", error)
    left.agent(1, 1, at=5.0)
    left.agent(0, 1, at=9.0, why="another failed")
    why = told(left, None).why
    assert (type(why), why.node, why.error) == (NodeFailed, 1, "OSError: no")


REFUSED = (
    "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out "
    "connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:36781"
)


@pytest.mark.parametrize("shared", [False, True])
def test_a_node_that_offers_its_own_loopback_is_named(left, shared):
    """As Debian's /etc/hosts does for the host name."""
    left.plan()
    left.write("played.json", {"shared": shared})
    left.life(0, 0, 0, 1.0, 5.2, code=1)
    left.life(1, 0, 1, 1.0, 5.4, code=-15, asked=5.3)
    folder = next((left.folder / "node_0/lives").iterdir())
    raised = {"error": REFUSED, "traceback": REFUSED, "time": 5.1, "frames": []}
    left.write(str(folder / "raised.json"), raised)
    why = told(left, None).why
    assert isinstance(why, OwnLoopback) != shared
    assert shared or (why.node, why.address, why.ranks) == (1, "127.0.1.1", (0,))


def test_a_cable_explains_only_what_was_noticed_while_it_was_pulled(left):
    left.plan()
    left.happened(Event("cut", 1, 4.0), Event("mend", 1, 6.0))
    found = agents.read_all(left.folder)
    assert not explain_nodes.cut_off(found, 3.0)
    trouble = explain_nodes.cut_off(found, 5.0)
    assert trouble and trouble.node == 1
    assert not explain_nodes.cut_off(found, 6.0 + explain_nodes.MENDING + 1)


@pytest.mark.parametrize("rank, wanted", [("0", "2"), ("1", "")])
def test_the_command_of_one_node_waits_in_vain(left, rank, wanted):
    meets = {"nnodes": "2", "rank": rank, "at": "a:1", "backend": "static"}
    left.write("plan.json", {"meets": [meets]})
    left.write("err", "")
    why = told(left).why
    assert why == NodesMissing(
        symptom=why.symptom, at="a:1", wanted=wanted, missing=why.missing
    )


def test_ranks_of_one_real_node_are_told_with_their_number_among_all(left):
    meets = {"nnodes": "2", "rank": "1", "at": "a:1", "backend": "static"}
    left.write("plan.json", {"meets": [meets]})
    for local, code in enumerate((-15, 3)):
        where = {"rank": 2 + local, "local_rank": local, "world_size": 4, "node": 0}
        home = f"none_x/attempt_0/{local}"
        left.write(f"{home}/where.json", where | {"start": 1.0})
        exit = {"code": code, "time": 2.0, "asked": 1.9 if code < 0 else False}
        left.write(f"{home}/exit.json", exit)
        left.write(f"{home}/stdout.log", "")
    # In torchrun's report, too, it has that number.
    left.write("err", "  rank      : 3 (local_rank: 1)\n  exitcode  : 3 (pid: 7)\n")
    failure = told(left, None)
    assert (failure.rank, failure.why.code) == (1, 3)
    assert failure.places[1] == "rank 3 of all 4"


def test_a_run_that_is_stopped_before_any_node_came_says_only_that(left):
    left.plan()
    for node in (0, 1):
        (left.folder / f"node_{node}/err").unlink()
    assert told(left).why == Stopped(by="timeout", limit=5.0)

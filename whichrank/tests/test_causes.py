"""The sentence of each cause, and of where a rank stands: tests/__snapshots__ has them.

An editor who changes a word runs `pytest --snapshot-update tests/test_causes.py`, reads
the diff, and changes the few places that quote it: outputs of lessons, TROUBLESHOOTING.
"""

import inspect
from dataclasses import replace

import pytest
from test_evidence import said_twice

from whichrank.explain import causes
from whichrank.explain.cause import Cause, Stand
from whichrank.explain.causes import beside as also
from whichrank.explain.causes import ended, node, waiting
from whichrank.explain.failure import Failure
from whichrank.explain.states import (
    Away,
    Computes,
    Elsewhere,
    Halted,
    Left,
    Lingers,
    Moves,
    Unknown,
    Unseen,
    Waits,
)
from whichrank.explain.symptoms import Symptom
from whichrank.record.calls import Call
from whichrank.record.stacks import Frame
from whichrank.record.words import duration

HERE, THERE = Frame("a.py", 20, "main"), Frame("a.py", 30, "step")
SMALL = Call("all_reduce", "all_reduce", "0", 2, ((4,),), ("float32",), 0, 0, HERE)
LARGE = replace(SMALL, shapes=((7,),), frame=THERE)
HELPER = replace(SMALL, callers=(Frame("b.py", 7, "main"),))
OTHER = Frame("b.py", 9, "main")
SENT = replace(SMALL, part="gradients, in backward")


def waits(rank: int, name: str = "barrier", *peers: int, **more) -> Waits:
    return Waits(rank, THERE, name, peers=peers, **more)


def away(rank: int, state: type[Stand] = Elsewhere, **more) -> Stand:
    return state(rank, HERE, **more)


def left(rank: int, end: Cause | None = None) -> Stand:
    """Return the stand of a rank that has ended, and not well if `end` tells."""
    return Left(rank, end=end)


RAISED = ended.Raised(rank=1, frame=HERE, error="ValueError: no 7")
KILLED = ended.Signalled(code=-9)
DIFFER = waiting.CallsDiffer(calls={0: SMALL, 1: LARGE, 2: SMALL})
COUNTED = waiting.Counted(SMALL, {0: 2, 1: 0, 2: 2})
WAYS = also.Attempts((((1, 3), RAISED), ((2,), ended.Exited(rank=0, code=9))), 4)
MOVES = Moves(1, pid=7, places=("a.py:1", "a.py:2"))
GROUP = replace(SMALL, group="1", members=(0, 1))


def circle(*stands: Stand, **more) -> waiting.Circle:
    to = tuple(stand.peers[0] for stand in stands)
    return waiting.Circle(stands=stands, to=to, **more)


def absent(*stands: Stand, **more) -> waiting.Absent:
    """Return that some have not come to where the last one waits."""
    return waiting.Absent(away=stands[:-1], waiting=stands[-1:], **more)


def apart(*stands: Stand, **more) -> waiting.Apart:
    return waiting.Apart(waiting=stands, **more)


CAUSES = [
    RAISED,
    KILLED,
    ended.Signalled(code=-42),
    ended.Exited(code=3),
    ended.Exited(code=1, words="needs an even number"),
    ended.Stopped(by="timeout", limit=8.0),
    ended.Stopped(by="output", limit=1000),
    *(ended.Stopped(by=by, limit="SIGKILL") for by in [*ended.STOPPED][3:]),
    ended.Stopped(by="interrupt"),
    absent(away(1), waits(0)),
    absent(away(1), away(2), waits(0)),
    absent(left(1), left(2), waits(0)),
    absent(left(1, KILLED), away(2, Halted), waits(0)),
    absent(left(1, replace(RAISED, since=waits(1))), waits(0)),
    absent(away(1, Halted, pid=7), waits(0)),
    absent(away(1), away(2), waits(0), rank=0),
    waiting.GroupsDiffer(ranks=(1,)),
    waiting.GroupsDiffer(ranks=(1, 2)),
    waiting.NotMet(),
    waiting.NotMet(looks="localhost:7"),
    waiting.NotMet(looks="localhost:7", rank=1),
    circle(waits(0, "recv", 1), waits(1, "all_reduce", 2), waits(2, "recv", 0)),
    circle(waits(0, "send", 1), waits(1, "recv", 0)),
    circle(waits(0, "all_reduce", 1), waits(1, "barrier", 0), before=COUNTED),
    DIFFER,
    replace(DIFFER, before=COUNTED),
    replace(DIFFER, before=replace(COUNTED, since=SMALL)),
    replace(DIFFER, calls={0: SENT, 1: LARGE}, before=replace(COUNTED, call=SENT)),
    replace(DIFFER, calls={0: HELPER, 1: replace(LARGE, callers=(OTHER,))}),
    replace(DIFFER, calls={0: SMALL, 1: LARGE}, raced=True),
    replace(DIFFER, calls={0: replace(SMALL, number=0), 1: replace(LARGE, number=0)}),
    waiting.RootsDiffer(
        name="src", stands=(waits(0, "broadcast", root=0), waits(1, root=1))
    ),
    waiting.SizesDiffer(came=64, expected=16),
    waiting.SizesDiffer(came=64, expected=16, name="all_reduce"),
    waiting.SizesDiffer(came=64, expected=16, name="recv"),
    waiting.SizesDiffer(came=64, expected=16, name="all_to_all_single"),
    apart(waits(0), waits(1)),
    apart(waits(0), replace(waits(1), frame=HERE)),
    apart(waits(0), waits(1, "all_reduce"), waits(2)),
    apart(waits(0, call=SMALL), waits(1, call=replace(SMALL, group="1"))),
    apart(waits(0, call=SMALL), waits(1, call=GROUP)),
    apart(waits(0, "new_group", members="[0]"), waits(1, "new_group", members="[1]")),
    apart(waits(0, "recv"), waits(1, "recv")),
    apart(waits(0, "reduce"), passed=(1, 2), means="dst"),
    waiting.Busy(stands=(away(0), away(1))),
    waiting.Busy(stands=(away(1),)),
    waiting.Busy(stands=(away(1, Lingers, name="thread feeder"),)),
    waiting.Busy(stands=(away(1, Lingers),)),
    waiting.Busy(stands=(away(1),), remote=True),
    waiting.Busy(stands=(away(0, beside=(("thread t", THERE),)),)),
    waiting.Busy(stands=(away(0), away(1)), symptom=Symptom.WORLD_IN_A_WORLD),
    waiting.Does(stands=(left(0), left(1))),
    waiting.Does(stands=(away(0, Moves),)),
    waiting.Does(stands=(away(0, Moves), away(1, Moves))),
    waiting.Does(stands=(waits(0), away(1, Computes), away(2, Halted)), rank=2),
    waiting.Does(
        stands=(left(0), away(1), away(2, Moves), away(3, Unseen), away(4, Away))
    ),
    node.CutOff(node=1),
    node.NodeLost(node=1, ranks=(2, 3), code=-9),
    node.NodeLost(node=1, ranks=(), code=None, event="stop node 1"),
    node.NodeLost(node=0, ranks=(0,), code=-9, event="kill node 0", had_store=True),
    node.NodeFailed(error="OSError: no", symptom=Symptom.NETWORK),
    node.NodesMissing(at="node0:1", away=(1,), there=(0, 2)),
    node.NodesMissing(at="node0:1", wanted="2", missing=1),
    node.NodesMissing(at="node0:1", wanted="3", missing=2),
    node.NodesMissing(at="node0:1"),
    node.NodesNotMet(at="node0:1"),
    node.OwnLoopback(address="127.0.0.1", ranks=(0,)),
    node.OwnLoopback(node=1, address="127.0.0.1", ranks=(0,)),
    node.NodesChanged(gone=(1,), come=(2, 3)),
    node.NodesChanged(come=(2,)),
    also.KnownAs(symptom=Symptom.KILLED),
    also.NotTheSame(of=DIFFER, failed=True),
    also.Complaint(rank=2, of=RAISED),
    also.Printed(rank=1, frame=HERE, error="KeyError: 1"),
    also.Printed(error="KeyError: 1"),
    also.NotMetAgain(of=waiting.NotMet(), shares_store=False),
    also.NotMetAgain(of=waiting.NotMet(), shares_store=True),
    also.StoodStill(seconds=300, stands=(waits(0), away(1))),
    also.StoodStill(seconds=8, stands=(waits(0), away(1, Computes))),
    also.StoodStill(seconds=8, stands=(waits(0), away(1, Moves))),
    also.StoodStill(seconds=8, stands=(away(1, Moves),)),
    also.Unrecorded(),
    also.Restarted(attempts=WAYS),
    also.Restarted(attempts=replace(WAYS, ways=WAYS.ways[1:], count=2)),
    also.LeftEarly(ranks=(1,)),
    also.LeftEarly(ranks=(0, 1)),
    also.KeptGroup(ranks=(0, 1)),
    also.NotJoined(copies=2),
    also.NotTheSame(of=DIFFER),
]
STANDS = [
    waits(0),
    waits(0, "send", 1),
    waits(0, "all_reduce", 1, 2, call=SMALL),
    waits(0, pid=7, beside=(("a thread t", HERE),)),
    left(1),
    left(1, KILLED),
    left(1, RAISED),
    left(1, ended.Exited(code=3)),
    Left(1, pid=0),
    away(1),
    away(1, beside=(("child process 0", THERE),)),
    away(1, pid=7),
    away(1, Halted),
    away(1, Halted, pid=7),
    away(1, Lingers, name="thread feeder"),
    Away(1),
    MOVES,
    replace(MOVES, places=()),
    replace(MOVES, places=tuple("abcd")),
    away(1, Computes, pid=7, share=0.99),
    away(1, Unseen, pid=7),
    away(1, Unseen, pid=7, trouble="py-spy may not look"),
    Unknown(1),
    Unknown(1, printed="step 3"),
]


def test_each_cause_has_its_sentence(snapshot):
    told = [f"{type(why).__name__}: {why}" for why in CAUSES]
    told += [f"advice: {why.advice}" for why in CAUSES if why.advice]
    assert "\n".join(told) == snapshot


def test_where_a_rank_stands_is_told(snapshot):
    told = [f"{stand} | {stand.now()}" for stand in STANDS]
    assert "\n".join(told) == snapshot


def test_no_cause_is_without_a_sentence_here():
    modules = (ended, node, waiting, also)
    all_kinds = {
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Cause) and kind.__module__.startswith(causes.__name__)
    }
    assert {type(why) for why in CAUSES} == all_kinds
    assert {type(stand) for stand in STANDS} == {*Stand.__subclasses__()}
    assert {why.by for why in CAUSES if isinstance(why, ended.Stopped)} == {
        *ended.STOPPED
    }


@pytest.mark.parametrize("seen", [None, 7])
@pytest.mark.parametrize(
    "kind, state",
    [
        (waiting.Busy, Elsewhere),
        (waiting.Busy, Lingers),
        (waiting.Does, Computes),
    ],
)
def test_where_the_culprit_stands_is_said_once(kind, state, seen):
    stand = away(1, state, pid=seen)
    why = kind(rank=1, frame=HERE, stands=(stand,))
    failure = Failure("timeout", why, by_rank={0: left(0), 1: stand})
    assert not said_twice(failure)
    assert ("pid 7" in failure.report()) == bool(seen)


def test_what_to_do_is_said_first():
    why = node.NodesNotMet(at="node0:1")
    failure = Failure("node", why, (also.KeptGroup(ranks=(0,)),))
    assert failure.means == f"{why.advice}; {failure.also[0]}"


def test_a_report_begins_with_whom_it_blames():
    told = {0: waits(0), 2: ended.Exited(code=3)}
    kept = (also.KeptGroup(ranks=(0,)),)
    why = absent(away(1), waits(0), rank=1, frame=HERE)
    failure = Failure("timeout", why, kept, "Trace", told)
    failure = replace(failure, places={1: "node 1, local 0"}, attempts=WAYS)
    assert failure.report() == (
        "rank 1 (node 1, local 0): has not come, and rank 0 waits in barrier\n"
        "  at a.py:20 in main\n"
        "  rank 0 ended without dist.destroy_process_group()\n"
        "\nTrace\n\n"
        "  rank 0: waits in barrier at a.py:30 in step\n"
        "  rank 2: exit code 3\n"
        "  attempts 1 and 3 of 4 failed: rank 1: ValueError: no 7 at a.py:20 in main\n"
        "  attempt 2 of 4 failed: rank 0: exit code 9"
    )
    assert node.CutOff(node=2).who({}) == "node 2"
    assert waiting.NotMet().who({}) == "the run"


def test_ranks_that_fail_in_the_same_words_elsewhere_have_their_lines():
    told = {0: RAISED, 2: replace(RAISED, frame=THERE)}
    report = Failure("exception", RAISED, by_rank=told).report()
    assert "  rank 0: the same\n  rank 2: the same at a.py:30 in step" in report


@pytest.mark.parametrize(
    "count, attempts", [(2, "both attempts"), (4, "all 4 attempts")]
)
def test_the_same_error_again_is_said_to_be_a_bug(count, attempts):
    (sentence,) = replace(WAYS, count=count, same=True).sentences()
    said = f"the same error at the same line in {attempts}: this is a bug, "
    assert sentence.startswith(said)


@pytest.mark.parametrize(
    "seconds, said",
    [(0.2, "1 second"), (8.6, "8 seconds"), (150, "2 minutes"), (9e4, "25 hours")],
)
def test_durations(seconds, said):
    assert duration(seconds) == said

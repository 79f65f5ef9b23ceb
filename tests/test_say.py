"""What say.py makes of each kind of cause: the only tests that pin its sentences.

An editor who changes a word there changes it here, and in the few places that quote
it: committed outputs, TROUBLESHOOTING.md, tests of living programs.
"""

from dataclasses import replace

import pytest

from ddp_lab.kit import say
from ddp_lab.kit.explain.cause import Attempts, Cause, Kind, Stand, Watched
from ddp_lab.kit.explain.failure import Failure
from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record.calls import Call
from ddp_lab.kit.record.stacks import Frame

HERE, THERE = Frame("a.py", 20, "main"), Frame("a.py", 30, "step")
SMALL = Call("all_reduce", "all_reduce", "0", 2, ((4,),), ("float32",), 0, 0, HERE)
LARGE = replace(SMALL, shapes=((7,),), frame=THERE)


def waits(rank: int, name: str = "barrier", *peers: int, **more) -> Stand:
    return Stand(rank, "waits", THERE, name, peers=peers, **more)


def away(rank: int, state: str = "elsewhere", **more) -> Stand:
    return Stand(rank, state, HERE, **more)


def left(rank: int, **how) -> Stand:
    """Return the stand of a rank that has ended, and not well if `how` tells."""
    return Stand(rank, "left", end=Cause(**how) if how else None)


KILLED = {"kind": Kind.SIGNAL, "code": -9}
MISMATCH = Cause(Kind.CALLS_DIFFER, calls={0: SMALL, 1: LARGE, 2: SMALL})
FAILED = Cause(Kind.RAISED, 1, HERE, error="ValueError: no 7")
WAYS = Attempts((((1, 3), FAILED), ((2,), Cause(Kind.EXIT, 0, code=9))), 4)

SAID = [
    (
        Cause(Kind.RAISED, error="ValueError: no"),
        "ValueError: no",
    ),
    (
        Cause(Kind.SIGNAL, code=-9),
        "ended by SIGKILL (usually sent by the system when memory runs out)",
    ),
    (
        Cause(Kind.SIGNAL, code=-9, name="kill node 1"),
        "ended by SIGKILL (by the event `kill node 1`)",
    ),
    (
        Cause(Kind.SIGNAL, code=-42),
        "ended by signal 42",
    ),
    (
        Cause(Kind.EXIT, code=3),
        "exit code 3",
    ),
    (
        Cause(Kind.EXIT, code=1, error="needs an even number"),
        "exit code 1: needs an even number",
    ),
    (
        Cause(Kind.UNWILLING),
        "was asked to end, and did not",
    ),
    (
        Cause(Kind.UNWILLING, stands=(waits(0),)),
        "was asked to end, and did not; it waits in barrier at a.py:30 in step",
    ),
    (
        Cause(Kind.LAUNCHER, code=-9),
        "the launcher was ended by SIGKILL (usually sent by the system when "
        "memory runs out)",
    ),
    (
        Cause(Kind.STOPPED, name="timeout", limit=8.0),
        "no end after 8 seconds; all processes were stopped",
    ),
    (
        Cause(Kind.STOPPED, name="interrupt"),
        "stopped by hand; all processes were ended",
    ),
    (
        Cause(Kind.STOPPED, name="output", limit=1000),
        "more than 1,000 bytes of output; all processes were stopped",
    ),
    (
        Cause(Kind.STOPPED, name="guard", limit="SIGKILL"),
        "the guard of this run was ended by SIGKILL from outside; all "
        "processes were stopped",
    ),
    (
        Cause(Kind.STOPPED, name="torchrun", limit="SIGKILL"),
        "torchrun itself was ended by SIGKILL, and its ranks with it",
    ),
    (
        Cause(Kind.STOPPED, name="nodes", limit="SIGKILL"),
        "what plays the nodes on this machine (room.py, or its switch.py) "
        "was ended by SIGKILL from outside, and the nodes with it",
    ),
    (
        Cause(Kind.STOPPED, name="srun", limit="SIGKILL"),
        "srun was ended by SIGKILL from outside, and the ranks with it",
    ),
    (
        Cause(Kind.STOPPED, name="slurm", limit="time limit"),
        "ended by SLURM: time limit",
    ),
    (
        Cause(Kind.STOPPED, name="warm", limit="SIGKILL"),
        "the warm process, which is the parent of torchrun and of all ranks, "
        "was ended by SIGKILL, and the run with it; the next run starts a new one",
    ),
    (
        Cause(Kind.CYCLE, stands=(waits(0, "send", 1), waits(1, "recv", 0))),
        "rank 0 waits in send for rank 1, rank 1 waits in recv for rank 0",
    ),
    (
        Cause(
            Kind.OTHER_TAG,
            stands=(waits(0, "send", 1, tag=1), waits(1, "recv", 0, tag=2)),
        ),
        "rank 0 waits in send with tag 1 for rank 1, but rank 1 waits in "
        "recv with tag 2 for rank 0",
    ),
    (
        Cause(Kind.PAIR, stands=(waits(0, "send", 1), waits(1, "recv", 0))),
        "rank 0 waits in send for rank 1, rank 1 waits in recv for rank 0: a message "
        "on its way, or they mean different groups",
    ),
    (
        Cause(
            Kind.OTHER_SOURCE,
            1,
            stands=(waits(1, "recv", 2),),
            waiting=(waits(0, "send", 1),),
        ),
        "waits in recv for rank 2, and rank 0 waits in send for it",
    ),
    (
        Cause(Kind.FEWER_GROUPS, ranks=(1,)),
        "every rank has to call new_group for every group, but rank 1 has "
        "called it less often than the others",
    ),
    (
        Cause(Kind.OLD_FILE, places=("file:///met",)),
        "the ranks do not meet in file:///met, which has to be a new file for each run",
    ),
    (
        Cause(Kind.NOT_MET, name="init_process_group"),
        "every rank waits in init_process_group, and does not find the others",
    ),
    (
        Cause(Kind.MEETS_ELSEWHERE, 1, ranks=(1,), places=("a:2", "a:1")),
        "looks for the others at a:2, but torchrun has told them to meet at a:1",
    ),
    (
        Cause(
            Kind.JOINS_AS_ANOTHER,
            1,
            ranks=(1,),
            places=("rank 0 of 3", "rank 1 of 3"),
        ),
        "joins as rank 0 of 3, but torchrun has started it as rank 1 of 3",
    ),
    (
        Cause(
            Kind.JOINS_AS_ANOTHER,
            ranks=(0, 1),
            places=("rank 0 of 3", "rank 0 of 2"),
        ),
        "ranks 0 and 1 do not join as what torchrun has started: rank 0 joins "
        "as rank 0 of 3, not as rank 0 of 2",
    ),
    (
        Cause(Kind.MEETS_ELSEWHERE, ranks=(1, 2), places=("a:2", "a:1")),
        "ranks 1 and 2 look for the others at a:2, but torchrun has told "
        "them to meet at a:1",
    ),
    (
        Cause(Kind.NOBODY_LISTENS, name="init_process_group", places=("a:2",)),
        "every rank waits in init_process_group, and does not find the "
        "others: nobody listens at a:2, which the program has set. Under "
        "torchrun rank 0 opens no store of its own, unless "
        "TORCHELASTIC_USE_AGENT_STORE is False",
    ),
    (
        Cause(Kind.CALLS_DIFFER, calls=MISMATCH.calls),
        "call 2 is all_reduce of float32 (4,) at a.py:20 on ranks 0 and 2, "
        "but all_reduce of float32 (7,) at a.py:30 on rank 1",
    ),
    (
        Cause(Kind.CALLED_ELSEWHERE, 1, calls=MISMATCH.calls),
        "before, call 2 was made at a.py:20 on ranks 0 and 2, but at a.py:30 on rank 1",
    ),
    (
        Cause(Kind.SIZES_DIFFER, sizes=(64, 32), name="all_reduce"),
        "a message of 64 bytes came where one of 32 was expected (a tensor or a piece "
        "of one): the ranks bring tensors of different sizes to all_reduce",
    ),
    (
        Cause(
            Kind.SAID_TO_DIFFER, calls={1: replace(LARGE, name="broadcast"), 0: SMALL}
        ),
        "rank 1 calls broadcast of float32 [7], but rank 0 calls all_reduce "
        "of float32 [4]",
    ),
    (
        Cause(Kind.PARAMETERS_DIFFER, 1, counts={0: 4, 1: 2, 2: 4}),
        "the ranks give DDP different models: 4 parameters on ranks 0 and 2, "
        "but 2 parameters on rank 1",
    ),
    (
        Cause(
            Kind.ROOTS_DIFFER, name="src", stands=(waits(0, root=0), waits(1, root=2))
        ),
        "the ranks wait in barrier with different src: 0 on rank 0, 2 on rank 1",
    ),
    (
        Cause(Kind.PASSED_BY, name="dst", ranks=(2,), waiting=(waits(0), waits(1))),
        "ranks 0 and 1 wait in barrier, which rank 2 has passed: they do not "
        "all mean the same dst",
    ),
    (
        Cause(Kind.UNABLE, 1, stands=(left(1, **KILLED),), waiting=(waits(0),)),
        "was ended by SIGKILL, and rank 0 waits in barrier",
    ),
    (
        Cause(
            Kind.UNABLE,
            1,
            stands=(left(1, kind=Kind.EXIT, code=3),),
            waiting=(waits(0),),
        ),
        "has ended with exit code 3, and rank 0 waits in barrier",
    ),
    (
        Cause(
            Kind.UNABLE,
            1,
            stands=(left(1, kind=Kind.RAISED, error="E", stands=(waits(1),)),),
        ),
        "has raised E, and waits in barrier at a.py:30 in step",
    ),
    (
        Cause(
            Kind.UNABLE,
            stands=(left(1, **KILLED), away(2, "stopped")),
            waiting=(waits(0),),
        ),
        "rank 1 was ended by SIGKILL, rank 2 is stopped (SIGSTOP), and rank "
        "0 waits in barrier",
    ),
    (
        Cause(Kind.ABSENT, 1, stands=(away(1),), waiting=(waits(0), waits(2, "send"))),
        "has not come, and rank 0 waits in barrier and rank 2 waits in send",
    ),
    (
        Cause(Kind.ABSENT, 1, stands=(away(1),), waiting=(waits(0), waits(2))),
        "has not come, and ranks 0 and 2 wait in barrier",
    ),
    (
        Cause(Kind.ABSENT, 1, stands=(left(1),), waiting=(waits(0),)),
        "has left, and rank 0 waits in barrier",
    ),
    (
        Cause(Kind.ABSENT, stands=(away(1), away(2)), waiting=(waits(0),)),
        "ranks 1 and 2 have not come, and rank 0 waits in barrier",
    ),
    (
        Cause(Kind.ALONE, 1, stands=(away(0), away(2)), waiting=(waits(1),)),
        "waits in barrier, but ranks 0 and 2 have not come",
    ),
    (
        Cause(Kind.NO_GRADIENTS, 1, stands=(away(1),), waiting=(waits(0), waits(2))),
        "stands at a.py:20, and ranks 0 and 2 wait for its gradients",
    ),
    (
        Cause(Kind.APART, waiting=(waits(0, "all_reduce"), waits(1), waits(2))),
        "the ranks wait in different calls: rank 0 in all_reduce, ranks 1 "
        "and 2 in barrier",
    ),
    (
        Cause(
            Kind.APART,
            waiting=(waits(0, call=SMALL), waits(1, call=replace(SMALL, group="1"))),
        ),
        "the ranks wait in different calls: rank 0 in barrier of group 0, "
        "rank 1 in barrier of group 1",
    ),
    (
        Cause(
            Kind.LINES_APART,
            1,
            stands=(replace(waits(1), frame=HERE),),
            waiting=(waits(0), waits(2)),
        ),
        "waits in barrier at a.py:20, but ranks 0 and 2 wait in it at a.py:30",
    ),
    (
        Cause(Kind.NOBODY_SENDS, waiting=(waits(0, "recv"), waits(1, "recv"))),
        "every rank waits in recv, so nobody answers",
    ),
    (
        Cause(Kind.NOT_TOGETHER, waiting=(waits(0), replace(waits(1), frame=HERE))),
        "every rank waits in barrier, at different lines: a.py:30 and "
        "a.py:20, but they do not meet: groups, sizes or earlier calls may "
        "differ (`ddp-lab torchrun` compares them)",
    ),
    (
        Cause(Kind.NOT_TOGETHER, waiting=(waits(0, call=SMALL), waits(1, call=SMALL))),
        "every rank waits in barrier, but they do not meet: groups, sizes or "
        "earlier calls may differ",
    ),
    (
        Cause(Kind.BUSY, stands=(away(0), away(1))),
        "ranks 0 and 1 stand at a.py:20, and no rank is seen to wait for another",
    ),
    (
        Cause(Kind.BUSY, stands=(away(0), replace(away(1), frame=THERE)), name="rpc"),
        "rank 0 stands at a.py:20, rank 1 stands at a.py:30, and of remote "
        "calls nobody records who waits for whom",
    ),
    (
        Cause(
            Kind.BUSY,
            1,
            stands=(away(1, beside=(("thread feeder", THERE),)),),
            name="left",
        ),
        "stands at a.py:20; thread feeder at a.py:30 in step, and the others have left",
    ),
    (
        Cause(Kind.BUSY, stands=(away(0),), name="program"),
        "the program stands at a.py:20",
    ),
    (
        Cause(Kind.LINGERS, 1, stands=(away(1, "lingers", name="thread feeder"),)),
        "has ended its main program, but thread feeder is still at a.py:20",
    ),
    (
        Cause(Kind.LINGERS, 1, stands=(Stand(1, "lingers", name="thread t (a.get)"),)),
        "has ended its main program, but thread t (a.get) has not ended",
    ),
    (
        Cause(Kind.LINGERS, stands=(Stand(0, "lingers"), Stand(1, "lingers"))),
        "ranks 0 and 1 have ended their main program, but they do not end",
    ),
    (
        Cause(
            Kind.LINGERS,
            stands=(Stand(0, "lingers"), away(1, "lingers", name="an exit function")),
        ),
        "the ranks have ended their main program, but it does not end on "
        "rank 0, an exit function is still at a.py:20 on rank 1",
    ),
    (
        Cause(Kind.LINGERS, 1, stands=(Stand(1, "lingers", end=FAILED),)),
        "has raised ValueError: no 7 in its main program, but it does not end",
    ),
    (
        Cause(Kind.WORLD_IN_A_WORLD, ranks=(0, 1)),
        "each of the 2 ranks of torchrun starts ranks of its own",
    ),
    (
        Cause(Kind.DOES, 1, stands=(waits(0), away(1, "busy"))),
        "is busy at a.py:20, and rank 0 waits in barrier",
    ),
    (
        Cause(Kind.DOES, stands=(away(0), away(1), away(2, "moves"))),
        "ranks 0 and 1 stand at a.py:20, and rank 2 moves",
    ),
    (
        Cause(Kind.DOES, stands=(waits(0), Stand(1, "away"), Stand(2, "unseen"))),
        "rank 2 cannot be looked at, rank 1 is not on this machine, and rank "
        "0 waits in barrier",
    ),
    (
        Cause(Kind.DOES, stands=(left(0), left(1), away(2, "stopped"))),
        "rank 2 is stopped by a signal or a debugger, and ranks 0 and 1 are "
        "not there any more",
    ),
    (
        Cause(Kind.ALL_MOVE, ranks=(0,)),
        "it moves",
    ),
    (
        Cause(Kind.ALL_MOVE, ranks=(0, 1), stands=(away(0, "moves"),)),
        "all 2 ranks move; rank 0 is the slowest: the others wait for it",
    ),
    (
        Cause(Kind.ENDED),
        "it has ended while we looked",
    ),
    (
        Cause(Kind.CUT_OFF, node=1),
        "is cut off: its cable is pulled",
    ),
    (
        Cause(Kind.NODE_LOST, node=1, ranks=(2, 3), code=-9),
        "has gone, with ranks 2 and 3: its torchrun was ended by SIGKILL",
    ),
    (
        Cause(Kind.NODE_LOST, node=1),
        "has gone: its torchrun was asked to end",
    ),
    (
        Cause(Kind.NODE_SAID, node=1, error="OSError: no"),
        "OSError: no",
    ),
    (Cause(Kind.SLOW_LINK, limit=20_000.0), "the network is slow"),
    (
        Cause(Kind.NODES_NOT_COME, nodes=(1,), sides={"a:1": (0, 2)}),
        "node 1 has not come, and nodes 0 and 2 wait at a:1",
    ),
    (
        Cause(Kind.NODE_ALONE, places=("a:1",), name="2", limit=1),
        "the second node has not come: this one waits at a:1, with --nnodes 2",
    ),
    (
        Cause(Kind.NODE_ALONE, places=("a:1",), name="4", limit=3),
        "the other 3 nodes have not come: this one waits at a:1, with --nnodes 4",
    ),
    (
        Cause(Kind.NO_NODE_0, places=("a:1",)),
        "the node with --node-rank 0 has not come: nobody is at a:1",
    ),
    (
        Cause(Kind.NODES_NOT_MET, places=("a:1",)),
        "the nodes do not meet at a:1, although they were started alike",
    ),
    (
        Cause(Kind.NODES_NOT_MET_AGAIN, places=("a:1",), nodes=(1,)),
        "the nodes do not meet again at a:1, where node 1 has come",
    ),
    (
        Cause(Kind.OWN_LOOPBACK, node=1, places=("127.0.1.1",), ranks=(0,)),
        "offers 127.0.1.1, where rank 0 finds only its own machine",
    ),
    (
        Cause(Kind.OWN_LOOPBACK, places=("127.0.1.1",), ranks=(0,)),
        "a node offers 127.0.1.1, where rank 0 finds only its own machine",
    ),
    (
        Cause(Kind.NODES_CHANGED, nodes=(1,), sides={"come": (2, 3)}),
        "node 1 has gone, nodes 2 and 3 have come",
    ),
    (
        Cause(Kind.KNOWN_AS, symptom=Symptom.CYCLE),
        "that is: each rank waits for another one in a circle, so nobody can "
        "be the first",
    ),
    (
        Cause(Kind.KNOWN_AS, symptom=Symptom.DISK_FULL, name="/tmp"),
        "that is: the disk is full, on which the lab keeps the output (/tmp)",
    ),
    (
        Cause(Kind.BEFORE, of=MISMATCH),
        "before: call 2 is all_reduce of float32 (4,) at a.py:20 on ranks 0 "
        "and 2, but all_reduce of float32 (7,) at a.py:30 on rank 1",
    ),
    (
        Cause(Kind.SAID, 0, of=FAILED),
        "rank 0: ValueError: no 7",
    ),
    (
        Cause(Kind.PRINTED, 1, HERE, error="KeyError: 1"),
        "before, rank 1 printed a traceback: KeyError: 1, at a.py:20",
    ),
    (
        Cause(Kind.PRINTED, 1, HERE, name="task Task-2", error="KeyError: 1"),
        "before, task Task-2 of rank 1 failed: KeyError: 1, at a.py:20",
    ),
    (
        Cause(Kind.PRINTED, error="KeyError: 1"),
        "before, it printed a traceback: KeyError: 1",
    ),
    (
        Cause(Kind.HANDLED, error="KeyError: 1"),
        "it left while it handled KeyError: 1",
    ),
    (
        Cause(Kind.HANDLED, frame=HERE, error="KeyError: 1"),
        "it left while it handled KeyError: 1, from a.py:20",
    ),
    (
        Cause(Kind.EVENT, name="cut node 1"),
        "by the event `cut node 1`",
    ),
    (
        Cause(Kind.RENDEZVOUS_LOST),
        "the others have lost the rendezvous with it",
    ),
    (
        Cause(Kind.NOT_MET_AGAIN, of=FAILED),
        "torchrun restarted the ranks, which did not meet again: ValueError: no 7",
    ),
    (
        Cause(Kind.NOT_MET_AGAIN, of=FAILED, name="shared"),
        "torchrun restarted the ranks, which did not meet again: ValueError: no 7; "
        f"{say.OWN_STORE}",
    ),
    (
        Cause(Kind.HELD, error="port 1 belongs to process 7 (nc)"),
        "port 1 belongs to process 7 (nc)",
    ),
    (
        Cause(Kind.WATCHED, limit=8.0, stands=(waits(0), away(1))),
        "nothing has moved for at least 8 seconds",
    ),
    (
        Cause(Kind.WATCHED, limit=8.0, stands=(waits(0), away(1, "busy"))),
        "a long computation, or a loop without an end, for at least 8 seconds",
    ),
    (
        Cause(Kind.WATCHED, limit=8.0, stands=(waits(0), away(1, "moves"))),
        "those that wait have waited for at least 8 seconds; what moves may yet come",
    ),
    (
        Cause(Kind.WATCHED, limit=8.0, stands=(away(0, "moves"), away(1, "moves"))),
        "",
    ),
    (
        Cause(Kind.LEFT_EARLY, ranks=(1,)),
        "rank 1 left before the end of its program, by os._exit or for "
        "another program, so Python's own work at the end was not done",
    ),
    (
        Cause(Kind.KEPT_GROUP, ranks=(0, 1)),
        "ranks 0 and 1 ended without dist.destroy_process_group()",
    ),
    (
        Cause(Kind.NOT_JOINED, limit=2),
        "no rank has joined a process group: 2 copies of the program have "
        "run side by side, and none knew of the others",
    ),
    (
        Cause(Kind.NOT_THE_SAME, of=MISMATCH),
        "not the same on all ranks: call 2 is all_reduce of float32 (4,) at "
        "a.py:20 on ranks 0 and 2, but all_reduce of float32 (7,) at a.py:30 "
        "on rank 1",
    ),
    (
        Cause(Kind.RESTARTED, attempts=WAYS),
        "restarted 3 times: attempts 1 and 3 of 4 failed: rank 1: "
        "ValueError: no 7 at a.py:20 in main; attempt 2 of 4 failed: rank 0: "
        "exit code 9",
    ),
    (
        Cause(
            Kind.RESTARTED,
            attempts=Attempts((((1,), Cause(Kind.NODES_CHANGED, nodes=(1,))),), 2),
        ),
        "restarted once: attempt 1 of 2 ended: node 1 has gone",
    ),
    (
        Cause(Kind.RESTARTED, attempts=Attempts((((1, 2, 3), FAILED),), 9)),
        "restarted 8 times: attempts 1 to 3 of 9 failed: rank 1: ValueError: "
        "no 7 at a.py:20 in main; 5 more failed in other ways",
    ),
    (
        Cause(Kind.UNRECORDED),
        "NCCL: a rank at a line that reads from its GPU may wait there for a "
        "call that it has made before; TORCH_FR_BUFFER_SIZE=2000 keeps a "
        "record of them",
    ),
]


def watched(stand: Stand, **more) -> Stand:
    return replace(stand, watched=Watched(7, share=0.5, **more))


STANDS = [
    (
        Stand(0, "unknown"),
        "printed nothing",
    ),
    (
        Stand(0, "unknown", printed="a line"),
        "last printed 'a line'",
    ),
    (
        waits(0),
        "waits in barrier at a.py:30 in step",
    ),
    (
        waits(0, "send", 1, 2),
        "waits in send for ranks 1 and 2 at a.py:30 in step",
    ),
    (
        waits(0, call=SMALL),
        "waits in all_reduce of float32 (4,) at a.py:30 in step",
    ),
    (
        left(0),
        "has left",
    ),
    (
        left(0, **KILLED),
        "was ended by SIGKILL",
    ),
    (
        away(0),
        "stands at a.py:20 in main",
    ),
    (
        away(0, beside=(("thread feeder", THERE),)),
        "stands at a.py:20 in main; thread feeder at a.py:30 in step",
    ),
    (
        away(0, "stopped"),
        "is stopped (SIGSTOP) at a.py:20 in main",
    ),
    (
        away(0, "lingers", name="thread feeder"),
        "has ended its main program, but thread feeder is still at a.py:20 in main",
    ),
    (
        Stand(0, "serves", beside=(("a thread that serves a remote call", HERE),)),
        "a thread that serves a remote call at a.py:20 in main",
    ),
    (
        watched(away(0, beside=(("process 9", THERE),))),
        "stands at a.py:20 in main [pid 7]\n    its process 9 stands "
        "at a.py:30 in step",
    ),
    (
        replace(left(0), watched=Watched(0)),
        "is not there: it has ended, or was never started",
    ),
    (
        watched(away(0, "stopped")),
        "is stopped by a signal or a debugger at a.py:20 in main [pid 7]",
    ),
    (
        watched(away(0, "moves")),
        "moves: seen in libraries only [pid 7]",
    ),
    (
        watched(away(0, "moves"), places=("a:1", "a:2", "a:3", "a:4")),
        "moves: seen at a:2, a:3, a:4 and more [pid 7]",
    ),
    (
        watched(away(0, "busy")),
        "is busy at a.py:20 in main (50% of a core) [pid 7]",
    ),
    (
        watched(Stand(0, "unseen")),
        "gives no stack [pid 7]",
    ),
    (
        watched(Stand(0, "unseen"), trouble="not permitted"),
        "not permitted [pid 7]",
    ),
    (
        Stand(0, "away"),
        "is not on this machine: `ddp-lab why` there tells",
    ),
]


@pytest.mark.parametrize("why, said", SAID)
def test_a_cause_is_said(why, said):
    assert say.cause(why) == said


@pytest.mark.parametrize(
    "what, of, said",
    [
        ("cold", ["no room"], "not a warm start: no room"),
        (
            "logging",
            ["--tee 3", "-r 1"],
            "the lab keeps the ranks' output itself, without --tee 3, -r 1",
        ),
        ("not kept", ["no room"], "the long output is not kept: no room"),
        (
            "not played",
            ["cut node 1"],
            "left out, because the nodes share one network: cut node 1",
        ),
        ("overdue", [], "torchrun had not ended long after its ranks, and was ended"),
        (
            "removed",
            ["rank 1"],
            "the log files of rank 1 were removed meanwhile; what was printed is lost",
        ),
        (
            "too late",
            ["7 seconds later: kill node 1"],
            "the run was over before this event: 7 seconds later: kill node 1",
        ),
    ],
)
def test_a_note_is_said(what, of, said):
    assert say.note(what, of) == said


def said_twice(failure: Failure) -> list[str]:
    """Return the sentences of a report that say again what stands above them."""
    head, *lines = failure.report(traceback=False).splitlines()
    of_ranks = [line.strip() for line in lines if line.startswith("  rank ")]
    rest = [line.strip() for line in lines if not line.startswith("  rank ")]
    parts = of_ranks + [part for line in rest for part in line.split("; ")]
    again = [part for n, part in enumerate(parts) if part in parts[:n]]
    return again + [line for line in lines if line.strip().startswith(head)]


@pytest.mark.parametrize("seen", [None, Watched(7, 0.99)])
@pytest.mark.parametrize(
    "kind, state",
    [(Kind.BUSY, "elsewhere"), (Kind.LINGERS, "lingers"), (Kind.DOES, "busy")],
)
def test_where_the_culprit_stands_is_said_once(kind, state, seen):
    stand = away(1, state, watched=seen)
    why = Cause(kind, 1, HERE, stands=(stand,), name="left" * (kind is Kind.BUSY))
    told = Failure("timeout", why, told={0: left(0), 1: stand})
    assert not said_twice(told)
    assert ("pid 7" in told.report()) == bool(seen)


def test_each_kind_of_cause_is_said():
    assert {why.kind for why, _ in SAID} == {*Kind}
    assert {*Kind} == say.PLAIN.keys() ^ say.SENTENCES.keys()
    assert {why.name for why, _ in SAID if why.kind is Kind.STOPPED} == {*say.STOPPED}
    states = {s.state for why, _ in SAID if why.kind is Kind.DOES for s in why.stands}
    assert states == {*say.DOES, "waits"} - {"unknown"}


@pytest.mark.parametrize("stand, said", STANDS)
def test_where_a_rank_stands_is_said(stand, said):
    assert say.stand(stand) == said


def test_what_stands_beside_a_line_of_the_program_is_brief():
    assert say.now(waits(0, "recv", 1)) == "waits in recv for rank 1"
    assert say.now(away(0)) == "is in its own code"
    assert say.now(left(0)) == "has left"


@pytest.mark.parametrize(
    "why, said",
    [
        (Cause(Kind.NODES_NOT_MET_AGAIN, name="shared"), say.OWN_STORE),
        (Cause(Kind.OWN_LOOPBACK), "look at its GLOO_SOCKET_IFNAME, and at its host "),
        (Cause(Kind.NODES_NOT_MET), "look at what that name means on each of them, "),
    ],
)
def test_what_to_do_is_said_first(why, said):
    told = say.means(why, [Cause(Kind.EVENT, name="cut node 1")])
    assert told.startswith(said) and told.endswith("; by the event `cut node 1`")


def test_a_store_for_each_attempt_is_no_advice_to_those_who_have_it():
    assert say.means(Cause(Kind.NODES_NOT_MET_AGAIN), []) is None


def test_a_report_begins_with_whom_it_blames():
    why = Cause(Kind.ABSENT, 1, HERE, stands=(away(1),), waiting=(waits(0),))
    told = {0: waits(0), 2: Cause(Kind.EXIT, code=3)}
    failure = Failure("timeout", why, (Cause(Kind.EVENT, name="x"),), "Trace", told)
    failure = replace(failure, places={1: "node 1, local 0"}, attempts=WAYS)
    assert failure.report() == (
        "rank 1 (node 1, local 0): has not come, and rank 0 waits in barrier\n"
        "  at a.py:20 in main\n"
        "  by the event `x`\n"
        "\nTrace\n\n"
        "  rank 0: waits in barrier at a.py:30 in step\n"
        "  rank 2: exit code 3\n"
        "  attempts 1 and 3 of 4 failed: rank 1: ValueError: no 7 at a.py:20 in main\n"
        "  attempt 2 of 4 failed: rank 0: exit code 9"
    )
    assert say.who(Cause(Kind.CUT_OFF, node=2), {}) == "node 2"
    assert say.who(Cause(Kind.NOT_MET), {}) == "the run"


@pytest.mark.parametrize(
    "count, same, said",
    [
        (2, 1, "the same error at the same line in both attempts: this is a bug, "),
        (4, 3, "the same error at the same line in all 4 attempts: this is a bug, "),
        (4, 2, "the same as now in 3 of 4 attempts: this is a bug, not a fault, "),
    ],
)
def test_the_same_error_again_is_said_to_be_a_bug(count, same, said):
    found = say.earlier(replace(WAYS, count=count, same=same))
    assert found[-1].startswith(said)
    assert len(found) == (1 if same == count - 1 else 3)


@pytest.mark.parametrize(
    "seconds, said",
    [(0.2, "1 second"), (8.6, "8 seconds"), (150, "2 minutes"), (9e4, "25 hours")],
)
def test_durations(seconds, said):
    assert say.duration(seconds) == said

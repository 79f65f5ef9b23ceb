"""The diagnosis on records as NCCL leaves them: hosts stand where they read a number.

No GPU is needed: the entries are those of PyTorch's recorder, legacy and nccl2 (2.15),
and the stacks say `.item()`, not the collective.
"""

import pickle
import sys
import types

import pytest

from whichrank.explain import hang
from whichrank.explain.stands import find_stands
from whichrank.explain.symptoms import in_words
from whichrank.record.calls import from_flight
from whichrank.record.heard import listen
from whichrank.record.rank_end import Handled
from whichrank.record.rank_log import RankLog
from whichrank.record.stacks import Frame
from whichrank.run.inside import program
from whichrank.run.inside.recorder import as_calls, flight

C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
PROGRAM = "train.py"
REDUCES, READS, WRITES = 24, 42, 60  # lines of the program
AT_ITEM = [Frame(PROGRAM, READS, "main")]


def entry(name, number, state="started", line=REDUCES, backend="nccl", **more):
    """Return an entry of the recorder: a call of the program's `line`."""
    frames = [(C10D, 1, more.pop("called", name)), (PROGRAM, line, "train_step")]
    shape, p2p = more.pop("shape", []), more.pop("p2p", False)
    return {
        "frames": [dict(filename=f, line=n, name=c) for f, n, c in frames],
        "profiling_name": f"{backend}:{name}",
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 0 if p2p else number,
        "p2p_seq_id": number if p2p else 0,
        "is_p2p": p2p,
        "input_sizes": [shape],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        **more,
    }


def log(entries, stack=AT_ITEM, **more):
    calls = from_flight({"calls": as_calls(entries)})
    return RankLog(stack=stack, calls=calls, groups={"0": [0, 1, 2, 3]}, **more)


def told(logs):
    """Return what a launch says of these ranks."""
    why = hang.diagnose(logs, find_stands(logs))
    return why.rank, str(why.symptom), str(why)


FIRST = entry("all_reduce", 1, "completed")
SECOND = [FIRST, entry("all_reduce", 2)]


def test_a_rank_that_makes_another_call_is_named():
    odd = [FIRST, entry("reduce", 2, line=39)]
    rank, symptom, said = told([log(odd), *(log(SECOND) for _ in range(3))])
    assert (rank, symptom) == (0, "different calls")
    assert "reduce of float32 () at train.py:39 on rank 0" in said


def test_a_rank_that_skips_a_collective_is_named():
    rank, symptom, said = told([log([FIRST]), *(log(SECOND) for _ in range(3))])
    assert (rank, symptom) == (0, "absent")
    assert said == "has not come, and ranks 1, 2 and 3 wait in all_reduce"


def test_other_shapes_are_named_though_nccl_does_not_check_them():
    for name in ("all_reduce", "_all_gather_base", "_reduce_scatter_base"):
        calls = [[entry(name, 1, shape=[3 if rank == 2 else 4])] for rank in range(4)]
        rank, symptom, said = told([log(each) for each in calls])
        assert (rank, symptom) == (2, "different tensors")
        assert "float32 (3,)" in said


def test_a_rank_that_raised_and_waits_as_it_leaves_is_named_by_what_it_raised():
    leaves = [Frame(C10D, 1, "destroy_process_group"), Frame(PROGRAM, 70, "run")]
    raised = Handled("ValueError: a sample is broken", [Frame(PROGRAM, 36, "f")])
    logs = [log(SECOND) for _ in range(4)]
    logs[1] = log([FIRST], leaves, handles=raised)
    rank, symptom, said = told(logs)
    assert (rank, symptom) == (1, "absent")
    assert said.startswith("has raised ValueError: a sample is broken")


def test_the_calls_of_a_batch_are_done_with_its_last_entry():
    names = ("isend", "irecv")
    batch = [entry(n, 1, "scheduled", 10, p2p=True) for n in names]
    over = entry("coalesced", 1, "completed", 10, p2p=True)
    assert [call.done for call in log([*batch, over]).calls] == [True, True]
    assert [call.done for call in log(batch).calls] == [False, False]
    saves = [Frame("/x/site-packages/torch/serialization.py", 900, "save")]
    saves += [Frame(PROGRAM, WRITES, "main")]
    meets = [Frame(C10D, 1, "barrier"), Frame(PROGRAM, 61, "main")]
    waits = [*batch, over, entry("all_reduce_barrier", 1, called="barrier", line=61)]
    logs = [log([*batch, over], saves), *(log(waits, meets) for _ in range(3))]
    assert told(logs)[:2] == (0, "absent")


def test_the_backends_of_a_group_count_apart():
    first = entry("all_gather", 1, "scheduled", 20, backend="gloo", retired=True)
    waits = [first, entry("all_reduce", 1)]
    logs = [log([first]), *(log(waits) for _ in range(3))]
    assert told(logs)[:2] == (0, "absent")


def test_what_nccl2_has_retired_is_done():
    calls = [
        entry("all_reduce", n, "scheduled", backend="nccl2", retired=n == 1)
        for n in (1, 2)
    ]
    assert [call.done for call in log(calls).calls] == [True, False]


def test_frames_of_ours_are_none_of_the_program_s():
    ours = {"filename": program.__file__, "line": 1, "name": "_run_main"}
    (call,) = as_calls([FIRST | {"frames": [*FIRST["frames"], ours]}])
    assert call["frames"] == [[PROGRAM, REDUCES, "train_step"]]


@pytest.mark.parametrize("by_backend", [True, False])
def test_each_recorder_is_asked(by_backend, monkeypatch):
    """From 2.15 on each backend has one of its own; before, one argument too many."""

    def record(backend):
        return pickle.dumps({"entries": [entry("all_reduce", 1, backend=backend)]})

    def dump(backend: str = "gloo"):
        return record(backend)

    module = types.SimpleNamespace(
        _dump_fr_trace=dump if by_backend else lambda: record("gloo"),
        _dump_nccl_trace=lambda: record("nccl"),
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", module)
    seen = [call["backend"] for call in flight()["calls"]]
    assert seen == ["gloo", "nccl"] + ["nccl2", "nccl-lazy"] * by_backend


WATCHDOGS = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
    "OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600021 milliseconds "
    "before timing out.",
    "NCCL operation failed: Operation timed out after 600000 ms",
)


def test_a_watchdog_only_says_that_somebody_else_is_missing():
    for said in WATCHDOGS:
        assert listen(said).gave_up
        assert str(in_words(said)) == "absent"

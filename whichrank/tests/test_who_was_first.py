"""Which of several failures came first, and what is told of attempts: no process."""

import json
import signal
from dataclasses import replace

import pytest

from whichrank.explain import ends, hang, stands
from whichrank.explain.attempts import compare
from whichrank.explain.cause import Cause
from whichrank.explain.causes.beside import (
    Attempts,
    NotMetAgain,
    Printed,
    Restarted,
)
from whichrank.explain.causes.ended import Raised, Signalled, Stopped
from whichrank.explain.causes.waiting import (
    Absent,
    Apart,
    Busy,
    SizesDiffer,
)
from whichrank.explain.failure import Failure
from whichrank.explain.find import find_failure, find_notes
from whichrank.record import stacks
from whichrank.record.calls import Call
from whichrank.record.heard import Blames
from whichrank.record.logs import RunLog, TorchrunLog
from whichrank.record.rank_end import Exit, LastWord, Uncaught
from whichrank.record.rank_files import RankFiles
from whichrank.record.rank_log import RankLog
from whichrank.record.stacks import Frame

TRACEBACK = """Traceback (most recent call last):
  File "a.py", line {line}, in work
    work()
{error}
"""
LOST = "RuntimeError: Connection closed by peer"
LATE = "RuntimeError: Timed out waiting 9ms"


def raised(time: float, error: str = "ValueError: no", asked=False, **more) -> RankLog:
    """Return the log of a rank that raised."""
    words = {"traceback": TRACEBACK.format(line=3, error=error), "error": error}
    words |= {"time": time, "frames": [Frame("a.py", 3, "work")]} | more
    error = Uncaught(**words)
    exit = Exit(1, time + 0.01, asked or None)
    return RankLog.of(RankFiles(raised=error, exit=exit, stderr=error.traceback))


def ended(time: float, code: int | None, asked=False, **more) -> RankLog:
    """Return the log of a rank that ended without a word, or with some on stderr."""
    return RankLog.of(RankFiles(exit=Exit(code, time, asked or None), **more))


def left(time: float, code: int, *before: str, **more) -> RankLog:
    """Return the log of a rank that left by sys.exit."""
    return ended(time, code, end=LastWord(code, time, before=before, **more))


def well(stderr: str = "") -> RankLog:
    end = LastWord(0, left_group=True, joined=True)
    return RankLog.of(RankFiles(end=end, stderr=stderr))


def explain(*logs: RankLog, stopped=None, code: int = 1, **more) -> Failure:
    failure, _ = find_failure(TorchrunLog(list(logs), **more), code, stopped, 8)
    return failure


@pytest.mark.parametrize(
    "logs, first",
    [
        ([raised(5.3), raised(5.0)], 1),
        ([raised(5.0), raised(5.3)], 0),
        ([ended(5.3, 3), ended(5.0, 5)], 1),
        ([ended(5.3, 3), raised(5.0)], 1),
        ([raised(5.3), ended(5.0, -9)], 1),
        ([ended(5.3, -11), ended(5.0, -6)], 1),
        # Its neighbor may know of a death a moment before we do.
        ([raised(5.0, "KeyError: 'nobody there'"), ended(5.05, -9)], 1),
        ([ended(5.0, -6), raised(5.05)], 1),
        ([left(5.0, 3), ended(5.05, -9)], 1),
        ([left(5.05, 3), left(5.0, 3)], 1),
        ([left(5.05, 3), raised(5.0)], 1),
        # Victims are no culprits, however early they complain.
        ([left(5.0, 1, LOST), raised(5.3)], 1),
        ([left(5.0, 1, "KeyError: 'sum'", LOST), ended(5.3, 3)], 1),
        ([raised(5.0, LOST), raised(5.3)], 1),
        ([raised(5.0, LATE), raised(9.0)], 1),
        ([raised(5.0, "KeyError: 'sum'", before=[LOST]), raised(5.3)], 1),
        ([ended(5.0, -15, asked=4.0), raised(5.3)], 1),
        ([ended(5.0, None, asked=4.0), raised(5.3)], 1),
        ([raised(5.0, asked=4.0), ended(9.0, 3)], 1),
        # Asked, but it fails before that reaches it; or nobody has asked at all.
        ([ended(5.3, 3, asked=4.0), raised(5.0, asked=6.0)], 1),
        ([ended(5.3, 3), ended(5.0, -15)], 1),
        ([raised(5.01, LOST), ended(5.0, -15, asked=6.0)], 1),
    ],
)
def test_who_failed_first_by_itself_is_named(logs, first):
    failure = explain(*logs)
    assert failure.rank == first, failure.report()
    other = logs[1 - first]
    told = ends.of_rank(other)
    if told is None or told.is_victim:
        assert failure.by_rank == {} or told.blames is not Blames.GONE
    else:
        assert 1 - first in failure.by_rank


def test_without_times_who_died_without_a_word_comes_first():
    logs = [RankLog(code=-6), RankLog(traceback=TRACEBACK, code=1), RankLog(code=3)]
    order = [ends.of_rank(log).order() for log in logs]
    assert order[2] < order[1] < order[0]


@pytest.mark.parametrize(
    "error, rank",
    [
        ("OSError: Connection reset by peer", 1),
        ("requests.exceptions.ConnectionError: Broken pipe", 1),
        ("RuntimeError: Connection reset by peer", None),
    ],
)
def test_who_loses_a_server_has_lost_no_rank(error, rank):
    lost = replace(raised(5.0, error), stack=[Frame("a.py", 3, "work")])
    barrier = Frame(f"site-packages/{stacks.C10D}", 0, "barrier")
    other = replace(raised(5.1, LOST), stack=[barrier, Frame("a.py", 9, "main")])
    failure = explain(other, lost)
    assert (failure.rank, failure.cause == error) == (rank, rank is not None)
    assert rank is None or failure.symptom is None


def test_who_raised_and_was_ended_on_its_way_out_is_no_victim():
    slow = raised(5.0, asked=6.0)
    slow = replace(slow, exit=replace(slow.exit, code=-15), code=-15)
    failure = explain(ended(5.3, 3, asked=6.0), slow)
    assert (failure.rank, failure.cause) == (1, "ValueError: no")


@pytest.mark.parametrize("stopped", ["timeout", "interrupt", "output"])
def test_what_was_said_before_a_run_is_stopped_comes_first(stopped):
    failure = explain(ended(6.0, None, asked=6.0), raised(5.0), stopped=stopped)
    assert (failure.rank, failure.cause) == (1, "ValueError: no")
    assert [type(c) for c in failure.also] == [Stopped] and failure.also[
        0
    ].by == stopped
    assert failure.by_rank[0].state == "unknown"


def test_a_rank_that_has_raised_and_does_not_end_has_failed():
    hangs = replace(raised(5.0), exit=None, code=None)
    failure = explain(RankLog(), hangs, stopped="timeout")
    assert (failure.kind, failure.rank) == ("exception", 1)
    assert failure.cause == "ValueError: no"


@pytest.mark.parametrize("log", [raised(5.0, LOST), raised(5.0, LATE), RankLog()])
def test_victims_do_not_explain_why_a_run_stands_still(log):
    assert explain(RankLog(), log, stopped="timeout").kind == "timeout"


def test_a_traceback_that_may_have_been_caught_blames_nobody():
    words = TRACEBACK.format(line=3, error="ValueError: no")
    log = RankLog.of(RankFiles(stdout="a line", stderr=words))
    failure = explain(RankLog(), log, stopped="timeout")
    assert (failure.kind, failure.rank) == ("timeout", None)
    printed = failure.also[0]
    assert (type(printed), printed.rank) == (Printed, 1)
    assert printed.error == "ValueError: no"
    assert log.warnings[-1] == "ValueError: no"


def test_a_launcher_that_was_ended_is_told():
    asked = [ended(5.0, -15, asked=4.0), ended(5.0, -15, asked=4.0)]
    failure = explain(*asked, code=-9)
    assert (failure.kind, failure.rank) == ("launch", None)
    assert failure.why == Stopped(by="torchrun", limit="SIGKILL")
    assert explain(ended(5.0, 3), asked[0], code=-9).rank == 0


@pytest.mark.parametrize("number, name", [(15, "SIGTERM"), (1, "SIGHUP")])
def test_a_launcher_that_was_asked_to_end_is_told(number, name):
    at = Frame("a.py", 9, "work")
    error = f"api.SignalException: Process 7 got signal: {number}"
    said = TRACEBACK.format(line=1, error=error)
    ranks = [replace(ended(5.0, -number, asked=4.0), stack=[at]) for _ in range(2)]
    failure = explain(*ranks, stderr=said)
    assert (failure.kind, failure.rank) == ("torchrun", None)
    assert failure.why == Stopped(by="asked", limit=name)
    assert [stand.frame for stand in failure.by_rank.values()] == [at, at]
    assert "Traceback" not in failure.report() and "usually" in failure.report()
    assert explain(ended(3.0, 3), *ranks, stderr=said).rank == 0


@pytest.mark.parametrize(
    "error, cause",
    [
        ("ValueError: a\nb", "ValueError: a b"),
        (f"ValueError: it said:\n{TRACEBACK}", "ValueError: it said:"),
        (
            "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal "
            + TRACEBACK.format(line=9, error="KeyError: 'x'"),
            "KeyError: Caught KeyError in DataLoader worker process 0. KeyError: 'x'",
        ),
    ],
)
def test_an_exception_is_told_in_its_own_words(error, cause):
    failure = explain(well(), raised(5.0, error))
    assert failure.cause == cause
    assert failure.line == (9 if "DataLoader" in error else 3)


# --- attempts ---


def failed(error: str, line: int = 3, rank: int = 1) -> Cause:
    return Raised(rank=rank, frame=Frame("a.py", line, ""), error=error)


def test_a_run_that_was_never_restarted_says_nothing_of_it():
    assert compare([]) is compare([], failed("x")) is None


def test_attempts_that_failed_alike_are_told_once():
    found = compare([failed("E: no 1"), failed("E: no 2")])
    assert found == Attempts((((1, 2), failed("E: no 1")),), 3)


def test_a_restart_whose_ranks_did_not_meet_hides_no_failure():
    def waits(rank: int) -> RankLog:
        meets = Frame(f"site-packages/{stacks.C10D}", 0, "init_process_group")
        said = "RuntimeError: Gloo connectFullMesh failed"
        return replace(raised(9.0, said), stack=[meets, Frame("a.py", 3, "main")])

    first = [well(), ended(1.0, 5)]
    failure = explain(waits(0), waits(1), earlier=[first])
    assert (failure.rank, failure.why.code) == (1, 5)
    assert [type(also) for also in failure.also] == [NotMetAgain]
    shared = explain(waits(0), waits(1), earlier=[first], shares_store=True)
    assert [also.shares_store for also in shared.also] == [True]
    assert explain(raised(9.0), well(), earlier=[first]).rank == 0
    again = explain(waits(0), waits(1), earlier=[first, [waits(0), waits(1)]])
    assert (again.rank, again.why.code) == (1, 5)
    assert [type(also) for also in again.also] == [NotMetAgain]
    assert not again.attempts.same, "a failed meeting is no bug"


def test_a_meeting_that_fails_again_and_again_is_no_bug():
    def fails() -> RankLog:
        c10d = f"/x/site-packages/torch/{stacks.C10D}"
        frames = [Frame(c10d, 1, "init_process_group"), Frame("a.py", 3, "main")]
        error = "torch.distributed.DistNetworkError: no answer"
        return raised(5.0, error, frames=frames)

    failure = explain(fails(), fails(), earlier=[[fails(), fails()]])
    assert failure.why.inside == "init_process_group"
    assert failure.attempts and not failure.attempts.same


@pytest.mark.parametrize("rank", range(3))
def test_whose_model_is_another_is_told_by_all_that_ddp_says(rank):
    counts = [2 if r == rank else 4 for r in range(3)]
    says = "DDP expects same model across all ranks, but Rank {} has {} params, while "
    logs = []
    for one, count in enumerate(counts):
        other = next(r for r in range(3) if counts[r] != count)
        words = f"rank {other} has inconsistent {counts[other]} params."
        words = f"RuntimeError: {says.format(one, count)}{words}"
        logs.append(raised(5.0 + one, words))
    failure = explain(*logs)
    assert (failure.rank, failure.symptom) == (rank, "different tensors")


def test_who_logs_that_a_peer_is_lost_and_exits_is_a_victim():
    lost = TRACEBACK.format(line=3, error=LOST)
    logged = ended(1.0, 1, stderr="ERROR:root:lost\n" + lost)
    assert explain(logged, raised(1.05)).rank == 1
    handled = ended(1.0, 1, stderr=lost + "no more data\n")
    assert explain(handled, raised(1.05)).rank == 0


def test_the_same_error_at_the_same_line_is_a_bug():
    same, other = failed("E: no"), failed("F: no", line=9)
    assert compare([same], same).same
    assert compare([same] * 2, same).same
    assert not compare([same, other], same).same
    assert not compare([other], same).same
    assert not compare([same]).same, "the last one went well, or did not meet"


def test_two_deaths_without_a_line_may_be_two_faults():
    death = Signalled(rank=1, code=-9)
    assert not compare([death], death).same


def test_attempts_are_read_in_the_order_of_their_numbers(tmp_path):
    for attempt in range(12):
        for rank in range(2):
            folder = tmp_path / "run" / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stdout.log").write_text(f"attempt {attempt}\n")
            code = 0 if attempt == 11 else 20 + attempt if rank else -signal.SIGTERM
            end = {"code": code, "time": 5.0 + rank, "asked": not rank and 4.0}
            (folder / "exit.json").write_text(json.dumps(end))
            done = {"code": 0, "left_group": True, "joined": True}
            if attempt == 11:
                (folder / "end.json").write_text(json.dumps(done))
        (tmp_path / "run" / f"attempt_{attempt}" / "store").write_text("")
    log: RunLog = TorchrunLog.read(tmp_path)
    assert [rank.lines for rank in log.ranks] == [["attempt 11"]] * 2
    assert [ranks[1].code for ranks in log.earlier] == [*range(20, 31)]
    assert find_failure(log, 0, None, 0)[0] is None
    (note,) = find_notes(log)
    assert (type(note), note.attempts.count) == (Restarted, 12)
    codes = [cause.code for _, cause in note.attempts.ways]
    assert codes == [*range(20, 31)]


@pytest.mark.parametrize("line, values", [(3, {"x": "1"}), (8, {})])
def test_a_rank_that_has_gone_on_is_not_where_it_was_seen(tmp_path, line, values):
    """At one line, what was seen from outside tells more; it has the variables."""
    folder = tmp_path / "run" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    seen = {"file": "/a.py", "line": 3, "name": "<module>", "values": {"x": "1"}}
    (folder / "stack.json").write_text(json.dumps([seen]))
    said = f'Current thread 0x1 (most recent call first):\n  File "/a.py", line {line}'
    (folder / "stack").write_text(f"{said} in <module>\n")
    (frame,) = TorchrunLog.read(tmp_path).ranks[0].stack
    assert (frame.line, frame.values) == (line, values)


def test_a_traceback_for_which_there_was_no_room_is_shown_from_stderr():
    said = "a line\n" + TRACEBACK.format(line=3, error="ValueError: no")
    error = replace(raised(5.0).raised, traceback="")
    log = RankLog.of(RankFiles(raised=error, stderr=said), 1)
    assert log.warnings[0] == "a line" and log.warnings[-1] == "ValueError: no"
    assert log.traceback == "ValueError: no"
    assert ends.of_rank(log).cause.error == "ValueError: no"


def test_who_left_by_sys_exit_has_a_line():
    log = left(5.0, 1, "OSError: nfs", frames=[Frame("a.py", 9, "main")])
    assert explain(log, well()).line == 9


def test_who_asks_a_store_itself_waits_for_no_rank():
    error = "torch.distributed.DistStoreError: wait timeout after 9ms, keys: /a"
    log = replace(raised(5.0, error), stack=[Frame("a.py", 3, "work")])
    barrier = Frame(f"site-packages/{stacks.C10D}", 0, "barrier")
    other = replace(raised(5.1, LOST), stack=[barrier, Frame("a.py", 9, "main")])
    failure = explain(other, log)
    assert (failure.rank, failure.cause) == (1, error)


def in_call(rank: int, *calls: Call) -> RankLog:
    """Return the log of a rank that has lost another one in its last call."""
    c10d = Frame(f"site-packages/{stacks.C10D}", 0, "all_reduce")
    log = replace(raised(5.1, LOST), stack=[c10d, Frame("a.py", 9, "main")])
    return replace(log, calls=list(calls))


def reduced(number: int, line: int, size: int = 4, done: bool = True) -> Call:
    frame, names = Frame("a.py", line, "main"), ("all_reduce", "all_reduce")
    return Call(*names, "0", number, ((size,),), ("float32",), done, False, frame)


def test_of_a_rank_that_has_caught_its_exception_and_left_that_is_told():
    quits = well(TRACEBACK.format(line=5, error="ValueError: bad sample 7"))
    here = [in_call(rank, reduced(1, 9, done=False)) for rank in (0, 2)]
    failure = explain(here[0], quits, here[1])
    assert (failure.rank, type(failure.why)) == (1, Absent)
    assert isinstance(failure.also[0], Printed)
    assert "ValueError: bad sample 7" in failure.traceback


def test_whom_gloo_aborts_has_brought_the_other_size():
    here = [in_call(rank, reduced(1, 9, 80_000, done=False)) for rank in (0, 2)]
    died = ended(5.0, -6, stderr="op.preamble.length <= op.nbytes. 53336 vs 46668")
    failure = explain(here[0], died, here[1])
    assert (failure.rank, type(failure.why)) == (1, SizesDiffer)
    assert failure.why.name == "all_reduce"


def test_where_one_rank_has_made_a_call_too_many_is_told():
    """From then on, its calls look like those of the others until they differ."""
    odd = [reduced(1, 6), reduced(2, 9), reduced(3, 6, done=False)]
    rest = [
        reduced(1, 6),
        reduced(2, 6),
        replace(reduced(3, 9), name="barrier", does="barrier"),
    ]
    found = hang.find_difference([odd, rest, rest])
    assert (found.rank, found.before.call.frame.line) == (0, 9)
    assert found.before.times == {0: 1, 1: 0, 2: 0}
    assert hang.find_difference([[odd[0], odd[2]], [rest[0], rest[2]]]).before is None


def test_ranks_that_make_groups_in_another_order_are_told_so():
    logs = []
    for ranks, made in (("[0, 1]", 1), ("[1, 2]", 3), ("[0, 1]", 2)):
        c10d = Frame(f"site-packages/{stacks.C10D}", 0, "new_group", {"ranks": ranks})
        groups = {str(number): [0, 1, 2] for number in range(made)}
        stack = [c10d, Frame("a.py", 7, "main")]
        logs.append(RankLog(stack=stack, groups=groups))
    found = hang.diagnose(logs, stands.find_stands(logs))
    assert (type(found), found.rank) == (Apart, None)
    assert "rank 1 in new_group of [1, 2]" in str(found)


def test_the_source_of_a_warning_is_no_last_word():
    warned = 'a.py:7: UserWarning: this option is old\n  warnings.warn("this option")\n'
    assert ended(5.0, 4, stderr=warned).last_words == ""
    assert ended(5.0, 4, stderr="no data\n" + warned).last_words == "no data"


def test_who_still_imports_serves_no_remote_call():
    rpc = Frame("site-packages/torch/distributed/rpc/__init__.py", 4, "<module>")
    load = Frame("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed")
    stack = [rpc, load, Frame("a.py", 3, "<module>")]
    logs = [RankLog(stack=stack), RankLog(stack=stack)]
    assert stacks.starts_up(stack)
    found = hang.diagnose(logs, stands.find_stands(logs))
    assert isinstance(found, Busy) and not found.remote

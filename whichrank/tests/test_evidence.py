"""What is made of runs that are kept in tests/evidence: no process is needed.

Each is explained anew, and judged twice: by what faults.py says that a reader needs,
and by the kinds, ranks and lines of __snapshots__/test_evidence.ambr, one row a run.
`pytest --snapshot-update tests/test_evidence.py` keeps those of today.
"""

import builtins
import json
import re
import signal
import sys
from dataclasses import replace

import pytest
from faults import FAULTS
from record_evidence import EVIDENCE, Recording
from support import HOUSE, SOURCE

from whichrank.explain import hang, stands
from whichrank.explain.cause import Cause
from whichrank.explain.causes.beside import Printed
from whichrank.explain.causes.ended import Raised, Signalled, Stopped
from whichrank.explain.causes.waiting import (
    Absent,
    Apart,
    Busy,
    CallsDiffer,
    Circle,
    RootsDiffer,
)
from whichrank.explain.failure import Failure
from whichrank.explain.find import find_failure
from whichrank.explain.symptoms import Symptom
from whichrank.record import calls, stacks
from whichrank.record.files import clip, shorten
from whichrank.record.logs import ProgramLog, RankLog, TorchrunLog, read
from whichrank.record.rank_end import Exit, LastWord, Uncaught
from whichrank.record.rank_files import RankFiles
from whichrank.record.stacks import Frame, own
from whichrank.run.inside import errors, program


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_kept_run_is_explained(fault, tmp_path, snapshot):
    recording = Recording.load(fault)
    told = recording.explain(tmp_path)
    fault.judge(fault.recorded, told, recording.program)
    assert told.row() == snapshot
    assert not (told.failure and said_twice(told.failure))


def said_twice(failure: Failure) -> list[str]:
    """Return the sentences of a report that say again what stands above them."""
    head, *lines = failure.report(traceback=False).splitlines()
    of_ranks = [line.strip() for line in lines if line.startswith("  rank ")]
    rest = [line.strip() for line in lines if not line.startswith("  rank ")]
    parts = of_ranks + [part for line in rest for part in line.split("; ")]
    again = [part for n, part in enumerate(parts) if part in parts[:n]]
    return again + [line for line in lines if line.strip().startswith(head)]


def test_nothing_is_kept_that_no_fault_explains():
    kept = {path.name for path in EVIDENCE.iterdir()}
    assert kept == {f"{fault.name}.txt" for fault in FAULTS}


def test_what_is_kept_names_no_machine():
    size = 0
    for path in EVIDENCE.iterdir():
        text = path.read_text(encoding="utf-8")
        size += len(text)
        for place in (str(HOUSE.parent), sys.prefix, "/tmp/", "/home/", "0x7"):
            assert place not in text, (path, place)
    assert size < 1_300_000


def test_finding_a_failure_changes_nothing(tmp_path):
    for fault in FAULTS:
        recording = Recording.load(fault)
        log, ending = recording.lay_out(tmp_path / fault.name), recording.ending
        before = repr(log)
        first, second = find_failure(log, *ending), find_failure(log, *ending)
        assert (repr(first), before) == (repr(second), repr(log)), fault.name


def test_explaining_needs_no_process():
    """Neither psutil nor subprocess comes in with the rooms, and no other room."""
    modules = [*SOURCE.glob("explain/**/*.py"), *SOURCE.glob("record/*.py")]
    for path in modules:
        imports = re.findall(r"^\s*(?:from|import) (\S+)", path.read_text(), re.M)
        assert not {"psutil", "subprocess", "multiprocessing"} & {*imports}, path
        inside = [name.split(".") for name in imports if name.startswith("whichrank.")]
        rooms = {room for _, room, *_ in inside}
        assert rooms <= {"explain", "record"}, path


REPORT = """
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 7)
"""


def left_behind(folder, ends: list[dict | None], stderr: str) -> TorchrunLog:
    """Return the log of ranks that have left nothing but these ends."""
    (folder / "err").write_text(stderr)
    for rank, end in enumerate(ends):
        rank_folder = folder / "run" / "attempt_0" / str(rank)
        rank_folder.mkdir(parents=True)
        if end:
            (rank_folder / "end.json").write_text(json.dumps(end))
    return TorchrunLog.read(folder)


@pytest.mark.parametrize("finished", [True, False])
def test_an_abort_counts_only_if_the_work_was_not_done(finished, tmp_path):
    done = {"code": 0, "left_group": True}
    log = left_behind(tmp_path, [done, done if finished else None], REPORT)
    failure, exit_codes = find_failure(log, 1, None, 0)
    assert exit_codes == [0, 0 if finished else -signal.SIGABRT]
    assert (failure is None) == finished


# --- how a run is read ---

TRACEBACK = """Traceback (most recent call last):
  File "a.py", line {line}, in work
    work()
ValueError: {says}
"""
OF_TORCH = TRACEBACK.replace("ValueError", "RuntimeError")


def test_the_two_ends_of_a_long_file_are_read(tmp_path):
    path = tmp_path / "long"
    path.write_text("abcdefghij")
    assert read(path, 5) == "abcdefghij"
    assert read(path, 4) == "abcd\n... 2 bytes left out ...\nghij"
    assert read(tmp_path / "missing") == ""


def test_what_is_read_can_be_shown(tmp_path):
    path = tmp_path / "colors"
    path.write_bytes(b"\x1b[31mred\x1b[0m \xff\n10%\r100%\r\n\ttab\x00")
    assert read(path) == "red \ufffd\n100%\n\ttab"


def test_a_long_traceback_keeps_its_ends():
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdefgh", 4) == "ab\n... left out ...\ngh"


def rank_of(tmp_path, **files: str) -> RankLog:
    """Return the log of a single rank of torchrun that has left these files."""
    folder = tmp_path / "run" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    (log,) = TorchrunLog.read(tmp_path).ranks
    return log


def test_what_native_code_adds_to_a_message_is_not_shown(tmp_path):
    stderr = "agent.cpp: eof\nframe #0: c10::Error::Error() + 0x9d (0x7f in libc10.so)"
    # The exception that it raises then says the same.
    stderr += "\n[E1126 ProcessGroupGloo.cpp:68] Gloo connectFullMesh failed with eof"
    log = rank_of(tmp_path, stderr_log=stderr)
    assert log.warnings == ["agent.cpp: eof"]


def test_where_a_rank_stood_is_where_it_raised_if_it_did(tmp_path):
    raised = json.dumps({"error": "E", "frames": [["a.py", 3, "work"]]})
    seen = json.dumps([{"file": "a.py", "line": 9, "name": "end", "values": {}}])
    log = rank_of(tmp_path, raised_json=raised, stack_json=seen)
    assert [frame.line for frame in log.stack] == [3]


def test_where_a_rank_stood_is_what_was_seen_if_it_only_warned(tmp_path):
    seen = json.dumps([{"file": "a.py", "line": 9, "name": "end", "values": {}}])
    told = TRACEBACK.format(line=3, says="caught")
    log = rank_of(tmp_path, stderr_log=told, stack_json=seen)
    assert [frame.line for frame in log.stack] == [9]


def test_the_stack_that_sigterm_left_is_the_last_resort(tmp_path):
    left = 'Thread 0x1 (most recent call first):\n  File "a.py", line 7 in work\n'
    assert [frame.line for frame in rank_of(tmp_path, stack=left).stack] == [7]


def test_only_the_last_attempt_counts(tmp_path):
    for attempt, words in enumerate(("first", "second")):
        folder = tmp_path / "run" / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text(f"{words}\n")
    (log,) = TorchrunLog.read(tmp_path).ranks
    assert log.lines == ["second"]


def test_the_error_is_the_last_one_that_is_not_torchruns_own():
    own = "Traceback (most recent call last):\n  ...\nChildFailedError: \nfar more"
    text = TRACEBACK.format(line=1, says="early") + TRACEBACK.format(
        line=2, says="late"
    )
    assert stacks.last_error(text) == "ValueError: late"
    assert stacks.last_error(text + own) == "ValueError: late"
    assert [frame.line for frame in stacks.from_text(text + own)] == [2]


def test_a_traceback_that_a_message_quotes_is_not_the_last_one():
    quoted = TRACEBACK.format(line=9, says="gone").replace("\n", "\n    ")
    text = TRACEBACK.format(line=2, says=f"bad\n    {quoted}")
    assert stacks.last_error(text).startswith("ValueError: bad Traceback")
    assert [frame.line for frame in stacks.from_text(text)] == [2]


def test_an_error_of_several_lines_is_one_line_and_not_too_long():
    text = TRACEBACK.format(line=1, says="one\n  two\nthree")
    assert stacks.last_error(text) == "ValueError: one two three"
    repeated = TRACEBACK.format(line=1, says="deep").rpartition("ValueError")[0]
    repeated += "  [Previous line repeated 4987 more times]\nRecursionError: deep\n"
    assert stacks.last_error(repeated) == "RecursionError: deep"
    long = stacks.last_error(TRACEBACK.format(line=1, says="x" * 5000))
    assert len(long) == stacks.LONGEST_ERROR + 1 and long.endswith("…")


def test_a_log_that_was_read_before_the_end_counts():
    before = RankLog(stack=[Frame("a.py", 1, "f")], traceback="", code=None)
    after = RankLog(["a line"], traceback="Connection closed by peer", code=1)
    stood = after.as_it_stood(before)
    assert stood.lines == ["a line"] and stood.stack == before.stack
    assert (stood.traceback, stood.code, stood.end) == ("", None, None)
    assert before.as_it_stood(RankLog()).stack == before.stack


def test_who_was_killed_with_its_proxy_has_no_code_though_torchrun_names_others():
    files = RankFiles(exit=Exit(None, 5.0, 4.0))
    log = RankLog.of(files, said=0)
    assert (log.code, log.end) == (None, None)
    assert RankLog.of(files, said=-9).code == -9
    assert RankLog.of(RankFiles(), said=0).finished, "it left early"
    assert RankLog.of(RankFiles()).code is None


def test_where_a_rank_was_seen_tells_more_than_a_traceback_that_it_has_printed():
    seen = [Frame("a.py", 3, "f")]
    printed = TRACEBACK.format(line=7, says="no")
    files = RankFiles(exit=Exit(1, 5.0), stderr=printed, seen=seen)
    assert RankLog.of(files).stack == seen
    assert RankLog.of(replace(files, seen=[])).stack[0].line == 7
    raised = Uncaught("ValueError: no", printed, [Frame("a.py", 8, "f")])
    assert RankLog.of(replace(files, raised=raised)).stack[0].line == 8


def test_whom_the_guard_has_ended_was_asked_when_it_did():
    before, after = (RankLog.of(RankFiles(exit=Exit(1, at))) for at in (4.0, 6.0))
    log = TorchrunLog([before, after]).ended_at(5.0)
    assert [rank.asked for rank in log.ranks] == [False, True]
    assert not after.asked, "it is a copy"


# --- what is made of it ---


def waiting(rank: int, name: str, peer: int | None = None) -> RankLog:
    """Return the log of a rank that waits in a call of torch.distributed."""
    values = {} if peer is None else {"dst": str(peer), "src": str(peer)}
    c10d = Frame(f"site-packages/{stacks.C10D}", 0, name, values)
    return RankLog(stack=[c10d, Frame("a.py", 10 + rank, "main")])


def diagnose(*logs: RankLog):
    return hang.diagnose(list(logs), stands.find_stands(list(logs)))


def told(found: Cause) -> tuple[type, list[int], list[int]]:
    """Return the type of a cause, which ranks explain it, and which ones wait."""
    explain = getattr(found, "stands", ()) or getattr(found, "away", ())
    waiting = getattr(found, "waiting", ())
    return type(found), *[[stand.rank for stand in each] for each in (explain, waiting)]


def test_of_two_that_are_elsewhere_the_one_that_is_waited_for_is_named():
    busy = [RankLog(stack=[Frame("a.py", 20 + rank, "work")]) for rank in (1, 2)]
    found = diagnose(waiting(0, "recv", 2), *busy)
    assert (found.symptom, found.rank) == (Symptom.ABSENT, 2)
    assert found.frame.line == 22


def test_who_waits_for_some_that_are_apart_is_not_the_odd_one():
    apart = [RankLog(stack=[Frame("a.py", 20 + rank, "work")]) for rank in (1, 2)]
    found = diagnose(waiting(0, "barrier"), *apart)
    assert found.rank is None
    assert told(found) == (Absent, [1, 2], [0])
    for line, rank in ((9, None), (20, 0)):  # before its line, and past it
        together = [RankLog(stack=[Frame("a.py", line, "main")])] * 2
        found = diagnose(waiting(0, "barrier"), *together)
        assert (found.rank, told(found)) == (rank, (Absent, [1, 2], [0]))


def test_a_cycle_is_found_wherever_it_is():
    found = diagnose(
        waiting(0, "send", 1), waiting(1, "send", 2), waiting(2, "send", 1)
    )
    assert found.symptom is Symptom.CYCLE
    assert told(found) == (Circle, [1, 2], [])
    assert found.frame.line == 11


def test_a_chain_is_no_cycle():
    late = RankLog(stack=[Frame("a.py", 5, "main")])
    found = diagnose(waiting(0, "send", 1), waiting(1, "send", 2), late)
    assert (found.symptom, found.rank, found.frame.line) == (Symptom.ABSENT, 2, 5)


def test_a_majority_decides_nothing():
    for name in ("broadcast", "all_reduce"):
        found = diagnose(*map(waiting, range(3), (name, "barrier", "barrier")))
        assert (type(found), found.rank) == (Apart, None)
    logs = [waiting(0, "all_reduce") for _ in range(2)]
    found = diagnose(*logs, waiting(2, "all_reduce"))
    assert (type(found), found.rank) == (Apart, None)
    assert "at different lines: a.py:10 and a.py:12" in str(found)
    assert diagnose(*logs).in_one_call


def test_the_call_of_torch_is_the_one_below_the_program_not_what_records_it():
    step = Frame("site-packages/torch/distributed/pipelining/schedules.py", 1, "step")
    inside = replace(step, name="_wait_batch_p2p")
    record = Frame("site-packages/torch/distributed/elastic/errors.py", 1, "wrapper")
    log = RankLog(stack=[inside, step, Frame("a.py", 5, "main"), record])
    (stand,) = stands.find_stands([log])
    assert (stand.state, stand.name, stand.frame.line) == ("waits", "step", 5)


def test_roots_that_agree_are_no_cause():
    found = diagnose(waiting(0, "broadcast", 0), waiting(1, "broadcast", 0))
    assert found.in_one_call


def test_the_one_other_root_is_named():
    found = diagnose(*(waiting(rank, "reduce", int(rank == 1)) for rank in range(3)))
    assert (found.symptom, found.rank) == (Symptom.DIFFERENT_CALLS, 1)
    assert (type(found), found.name) == (RootsDiffer, "dst")
    assert [stand.root for stand in found.stands] == [0, 1, 0]


def test_a_rank_of_which_nothing_is_known_explains_nothing():
    assert diagnose(RankLog(), RankLog()) is None


@pytest.mark.parametrize("name", ["broadcast", "scatter", "reduce", "gather"])
def test_whoever_has_a_root_may_mean_another_one(name):
    found = diagnose(waiting(0, name, 0), waiting(1, name, 1))
    assert (found.symptom, found.rank) == (Symptom.DIFFERENT_CALLS, None)
    assert found.frame.line == 10


def test_nobody_sends_is_told_with_the_first_ranks_line():
    found = diagnose(waiting(0, "recv"), waiting(1, "recv"))
    assert found.unanswered
    assert found.frame.line == 10


def test_lines_facts_warnings_and_noise_are_told_apart():
    words = TRACEBACK.format(line=1, says="no")
    files = RankFiles(
        stdout='{"loss": 1}\n{"loss": 2, "step": 3}\n{no fact}\n\na line\n',
        stderr="a warning\n[Gloo] Rank 0 is connected\n\n[rank0]: " + words,
    )
    log = RankLog.of_output(files, code=1)
    assert (log.facts, log.lines) == ({"loss": 2, "step": 3}, ["{no fact}", "a line"])
    assert (log.warnings, log.traceback) == (["a warning"], words)


def test_lines_of_ranks_that_share_an_output_are_told_apart(tmp_path):
    (tmp_path / "out").write_text(
        '[rank 1] one[rank 0] zero\nnobody\'s\n{"rank": 2, "x": 5}\n'
    )
    (tmp_path / "err").write_text("")
    ranks = ProgramLog.read(tmp_path).ranks
    assert [log.lines for log in ranks] == [
        ["[rank 0] zero", "nobody's"],
        ["[rank 1] one"],
        [],
    ]
    assert ranks[2].facts == {"rank": 2, "x": 5}


@pytest.mark.parametrize(
    "numbers, ranks", [((64,), 1), ((1, 0), 2), ((0, 1, 3), 2), ((1, 2), 1), ((), 1)]
)
def test_ranks_that_share_an_output_count_from_0(tmp_path, numbers, ranks):
    out = "".join(f'{{"rank": {number}}}\n' for number in numbers)
    (tmp_path / "out").write_text(out)
    assert len(ProgramLog.read(tmp_path).ranks) == ranks


# --- ranks that cannot come ---


def ended(code: int, asked: float | bool = False, **more) -> RankLog:
    return RankLog(exit=Exit(code, 1.0, asked or None), **more)


def test_a_rank_that_somebody_else_has_ended_is_named():
    found = diagnose(waiting(0, "barrier"), ended(-signal.SIGTERM))
    assert (found.symptom, found.rank) == (Symptom.ABSENT, 1)
    assert told(found) == (Absent, [1], [0])
    assert found.away[0].end == Signalled(code=-15)


def test_a_rank_that_was_asked_to_end_is_not():
    busy = RankLog(stack=[Frame("a.py", 5, "main")])
    found = diagnose(waiting(0, "barrier"), ended(-signal.SIGTERM, 1.0), busy)
    assert found.rank == 2


def test_a_rank_that_has_raised_and_does_not_end_is_named():
    raised = Uncaught("ValueError: no", time=1.0)
    stack = [Frame("a.py", 5, "main")]
    found = diagnose(waiting(0, "barrier"), RankLog(raised=raised, stack=stack))
    assert (found.rank, found.frame.line) == (1, 5)
    assert told(found) == (Absent, [1], [0])
    assert found.away[0].end.error == "ValueError: no"


def test_several_that_cannot_come_are_told_each():
    found = diagnose(
        waiting(0, "barrier"), ended(-9), RankLog(stopped=True), waiting(3, "barrier")
    )
    assert found.rank is None
    assert told(found) == (Absent, [1, 2], [0, 3])


def after_main(line: int, thread: str = "feeder") -> RankLog:
    """Return the log of a rank whose main program has ended, and a thread has not."""
    ours = Frame(program.__file__, 2, program._finish.__name__)
    stack = [Frame("<threading>", 1, "_shutdown"), ours]
    return RankLog(stack=stack, threads={thread: [Frame("a.py", line, "f")]})


def test_threads_that_go_on_are_told_by_rank():
    same = diagnose(after_main(3), after_main(3))
    assert told(same) == (Busy, [0, 1], [])
    two = diagnose(after_main(3), after_main(4, "reader"))
    assert [stand.name for stand in two.stands] == ["thread feeder", "thread reader"]


def test_of_remote_calls_nobody_says_that_no_rank_waits():
    rpc = Frame("/x/site-packages/torch/distributed/rpc/api.py", 842, "rpc_sync")
    found = diagnose(*[RankLog(stack=[rpc, Frame("a.py", 3 + r, "f")]) for r in (0, 1)])
    assert (found.symptom, found.rank) == (Symptom.BUSY, None)
    assert told(found) == (Busy, [0, 1], []) and found.remote


def test_a_rank_that_only_ends_late_is_absent_where_others_wait():
    found = diagnose(waiting(0, "barrier"), after_main(3))
    assert (found.symptom, found.rank) == (Symptom.ABSENT, 1)


def test_a_rank_whose_stack_nobody_can_read_is_absent_if_all_others_wait_for_it():
    calls_it = rooted(0, 0, name="barrier"), rooted(2, 0, name="barrier")
    found = diagnose(calls_it[0], RankLog(), calls_it[1])
    assert told(found) == (Absent, [1], [0, 2]) and found.rank == 1
    assert found.frame is None, "it is not where the others wait"
    assert diagnose(calls_it[0], RankLog(), RankLog()) is None, "it may be either"


def test_a_group_is_told_by_the_first_exception_in_it():
    group = getattr(builtins, "ExceptionGroup", None)
    if group is None:
        pytest.skip("Python 3.10 has no groups of exceptions")
    try:
        raise ValueError("a")
    except ValueError as inside:
        raised = errors.raised(group("two files", [inside, KeyError("b")]))
    assert raised["error"].endswith("two files (2 sub-exceptions), from ValueError: a")
    assert [frame[0] for frame in raised["frames"]] == [__file__]


def test_a_victim_may_hide_what_led_to_its_error():
    try:
        try:
            raise RuntimeError("Connection closed by peer [127.0.0.1]:7")
        except RuntimeError:
            raise ValueError("could not sync") from None
    except ValueError as error:
        raised = errors.raised(error)
    assert raised["error"] == "ValueError: could not sync"
    assert "Connection" not in raised["traceback"], "what is shown keeps to `from None`"
    raised["frames"] = stacks.from_lists(raised["frames"])
    assert RankLog(code=1, raised=Uncaught(**raised)).heard.gave_up


def test_who_destroys_its_group_waits_for_nobody():
    stuck = RankLog(stack=[*waiting(0, "destroy_process_group").stack])
    found = diagnose(stuck, RankLog(end=LastWord(0, left_group=True)))
    assert (found.symptom, found.rank) == (Symptom.BUSY, 0)


def test_who_gave_up_has_waited_wherever_it_was():
    lost = OF_TORCH.format(line=3, says="Connection closed by peer")
    late = TRACEBACK.format(line=4, says="Timed out waiting 9ms")
    logs = [
        RankLog(traceback=text, stack=stacks.from_text(text)) for text in (lost, late)
    ]
    assert {stand.state for stand in stands.find_stands(logs)} == {"waits"}
    assert diagnose(*logs) is None or diagnose(*logs).in_one_call


def test_who_waits_for_a_thread_waits_for_no_rank():
    wait = Frame("/lib/python3.11/site-packages/x/threading.py", 9, "wait")
    (stand,) = stands.find_stands([RankLog(stack=[wait, Frame("a.py", 1, "main")])])
    assert stand.state == "elsewhere"


# --- circles through collectives ---


def in_group(
    rank: int, group: str, members: tuple[int, ...], number: int, line: int, *made: int
) -> RankLog:
    """Return the log of a rank that waits in a call of a group, at this line.

    Args:
        made: the lines of the calls of its own group of two that it has done before.
    """
    own_group = "row" if rank % 2 else "column"
    done = [
        calls.Call(
            *("all_reduce", "all_reduce", own_group, n, (), ()),
            *(True, False, Frame("a.py", at, "main")),
        )
        for n, at in enumerate(made, 1)
    ]
    name = "barrier" if group == "0" else "all_reduce"
    log = waiting(rank, name)
    frame = Frame("a.py", line, "main")
    log.stack[-1] = frame
    call = calls.Call(name, name, group, number, (), (), False, False, frame, members)
    return replace(log, calls=[*done, call])


ALL, ODD = (0, 1, 2, 3), (1, 3)


def test_in_a_mesh_the_rank_that_has_skipped_a_call_is_named():
    barrier = [in_group(rank, "0", ALL, 1, 9, 5, 5) for rank in (0, 2)]
    waits = in_group(1, "row", ODD, 2, 5, 5)
    found = diagnose(barrier[0], waits, barrier[1], in_group(3, "0", ALL, 1, 9, 5))
    assert (type(found), found.rank, found.frame.line) == (Circle, 3, 9)
    assert found.before.times == {0: 2, 1: 2, 2: 2, 3: 1}


def test_who_has_made_other_calls_by_its_part_is_not_blamed_for_a_circle():
    """Rank 3 alone computes a loss, at line 7; rank 1 has come to line 5 too often."""
    barrier = [in_group(rank, "0", ALL, 1, 9, 5) for rank in (0, 2)]
    waits = in_group(1, "row", ODD, 2, 5, 5)
    last = in_group(3, "0", ALL, 1, 9, 5)
    last.calls.insert(
        0, replace(last.calls[0], group="last", frame=Frame("a.py", 7, "f"))
    )
    found = diagnose(barrier[0], waits, barrier[1], last)
    assert (type(found), found.rank, found.frame.line) == (Circle, 1, 5)


def grouped(number: int, line: int, done: bool = True, *members: int) -> calls.Call:
    """Return an all_reduce of a group, which is named after its members."""
    frame, name = Frame("a.py", line, "main"), "".join(map(str, members)) or "0"
    made = ("all_reduce", "all_reduce", name, number, ((2,),), ("float32",))
    return calls.Call(*made, done, False, frame, members)


def test_what_the_recorder_has_lost_is_not_counted():
    world = [grouped(number, 7) for number in range(1, 6)]
    also = grouped(1, 8, True, 0, 1)
    last = grouped(6, 20, False)
    other = replace(last, name="barrier", does="barrier")
    kept = [also, *world[2:], last], [also, *world[2:], last], [*world, other]
    found = hang.find_difference(kept)
    assert (found.rank, found.before) == (2, None), "each has made the five"
    more = [[*calls[:-1], also, calls[-1]] for calls in kept[:2]]
    found = hang.find_difference([*more, kept[2]])
    assert found.before.times == {0: 1, 1: 1, 2: 0}
    assert found.before.since.number == 3


@pytest.mark.parametrize(
    "sizes, expected, rank",
    [((9, 3), 4, 0), ((9000, 3000), 2000, 0), ((9000, 3000), 668, None)],
)
def test_of_three_sizes_none_is_odd(sizes, expected, rank):
    """Rank 2 was aborted, and its record lost: gloo sends a sixth of the tensor."""
    made = [replace(grouped(1, 9, False), shapes=((n,),)) for n in sizes]
    assert (
        hang.find_difference([*[[call] for call in made], []], (2, expected)).rank
        == rank
    )


def test_a_size_that_was_brought_at_the_same_line_before_may_be_it():
    """The names of a set come in another order on each rank: 1, 9, 3 and 1, 3, 9."""
    first, small, large = (
        replace(grouped(number, 9), shapes=((size,),))
        for number, size in ((1, 1), (2, 3), (2, 9))
    )
    found = hang.find_difference([[first, large], [first, small], []], (2, 4))
    assert (type(found), found.rank) == (CallsDiffer, None)


def test_what_a_root_brings_does_not_make_it_odd():
    def made(name, *shapes):
        return replace(grouped(1, 9), name=name, does=name, shapes=shapes)

    calls_it = made("scatter", (3, 2)), made("scatter"), made("broadcast", (2,))
    assert hang.find_difference([[call] for call in calls_it]).rank == 2


def test_many_ranks_that_wait_for_many_are_soon_told():
    ranks = range(64)
    logs = [in_group(r, "0", tuple(ranks), 64 - r, 9) for r in ranks]
    for rank, log in enumerate(logs):
        done = [
            replace(log.calls[-1], number=n, done=True) for n in range(1, 64 - rank)
        ]
        log.calls[:-1] = done
    assert isinstance(diagnose(*logs), Apart)


# --- who means another root ---


def rooted(rank: int, root: int, number: int = 1, name: str = "reduce") -> RankLog:
    """Return the log of a rank that waits in call `number`, and means this root."""
    log = waiting(rank, name, root)
    call = calls.Call(name, name, "0", number, (), (), False, False, own(log.stack))
    return replace(log, calls=[call])


def has_passed(rank: int, name: str = "reduce", line: int = 0) -> RankLog:
    """Return the log of a rank that has done that call, and left."""
    frame = Frame("a.py", line, "work")
    call = calls.Call(name, name, "0", 1, (), (), True, False, frame)
    return RankLog(calls=[call], end=LastWord(0, left_group=True))


def test_who_means_another_root_is_named_only_among_all():
    found = diagnose(rooted(0, 0), rooted(1, 2), has_passed(2), has_passed(3))
    assert (found.symptom, found.rank) == (Symptom.DIFFERENT_CALLS, None)
    assert [(s.rank, s.root) for s in found.stands] == [(0, 0), (1, 2)]
    assert diagnose(rooted(0, 1), rooted(1, 2), rooted(2, 2)).rank == 0


def test_of_roots_that_nobody_knows_only_the_standstill_is_told():
    first, second = (replace(rooted(rank, 0), stack=[]) for rank in (0, 1))
    lost = OF_TORCH.format(line=3, says="Connection closed by peer")
    logs = [replace(log, traceback=lost) for log in (first, second)]
    found = diagnose(*logs, has_passed(2))
    assert found.rank is None
    assert told(found) == (Apart, [], [0, 1])
    assert (found.passed, found.means) == ((2,), "dst")


@pytest.mark.processes  # importing torch starts one
def test_dtypes_have_pytorchs_names():
    torch = pytest.importorskip("torch")
    for short, name in calls.DTYPES.items():
        tensor = torch.zeros(1, dtype=getattr(torch, name))
        assert tensor.type() == f"torch.{short}Tensor"


def test_a_call_that_differs_before_the_failure_is_told():
    def call(rank, shape):
        frame = Frame("a.py", 3 + rank, "f")
        names = ("all_reduce", "all_reduce", "0", 1)
        return calls.Call(*names, (shape,), ("float32",), True, False, frame)

    found = hang.find_difference([[call(0, (2,))], [call(1, (3,))], [call(2, (2,))]])
    assert (found.symptom, found.rank) == (Symptom.DIFFERENT_TENSORS, 1)
    assert found.frame.line == 4
    assert isinstance(found, CallsDiffer)
    assert [call.shapes for call in found.calls.values()] == [((2,),), ((3,),), ((2,),)]
    assert hang.find_difference([[call(0, (2,))], [call(1, (2,))], []]) is None


@pytest.mark.parametrize("does", [*calls.SAME_SIZE, "all_to_all"])
def test_sizes_have_to_agree_where_every_rank_brings_the_same(does):
    def call(shape, dtype="float32"):
        return calls.Call(does, does, "0", 1, (shape,), (dtype,), True, False, None)

    equal = does == "all_to_all"
    assert call((2,)).matches(call((2,)))
    assert call((2,)).matches(call((3,))) == equal
    assert call((2,)).matches(call((2,), "int32")) == equal


def stands_in(*made: calls.Call) -> RankLog:
    """Return the log of a rank that waits in the last of these calls."""
    c10d = Frame(f"site-packages/{stacks.C10D}", 0, made[-1].name)
    return RankLog(stack=[c10d, made[-1].frame], calls=list(made))


def columns(times: tuple[int, int, int, int], waits: int, before=()) -> list[RankLog]:
    """Return the logs of a mesh with the columns 0 and 2, and 1 and 3.

    Rank `waits` stands in its last call of the column, the others in one of all.

    Args:
        times: how often each rank has called it.
        before: calls that some ranks have made before, by rank.
    """
    logs = []
    for rank, count in enumerate(times):
        column = (rank % 2, rank % 2 + 2)
        made = [grouped(n, 9, True, *column) for n in range(1, count + 1)]
        last = [] if rank == waits else [grouped(1, 20, False)]
        if rank == waits:
            made[-1] = replace(made[-1], done=False)
        logs.append(stands_in(*dict(before).get(rank, ()), *made, *last))
    return logs


def test_who_has_skipped_a_call_of_its_column_is_named():
    found = diagnose(*columns((3, 3, 3, 2), waits=1))
    assert (type(found), found.rank) == (Circle, 3)
    assert found.before.times == {0: 3, 1: 3, 2: 3, 3: 2}


def test_of_two_that_are_beside_each_other_one_may_have_skipped_a_call():
    logs = columns((3, 3, 2, 3), waits=0)
    row = grouped(1, 12, False, 0, 1)  # rank 1 is behind, and waits for rank 0
    logs[1] = stands_in(*logs[1].calls[:-1], row)
    found = diagnose(*logs)
    assert (type(found), found.rank) == (Circle, 2)


def test_who_has_made_a_call_too_many_is_named_and_not_who_has_come():
    found = diagnose(*columns((3, 3, 4, 3), waits=2))
    assert (type(found), found.rank) == (Circle, 2)
    # Rank 0 is no member of the group in which the others have met before.
    met = {rank: [grouped(1, 5, True, 1, 2, 3)] for rank in (1, 2, 3)}
    found = diagnose(*columns((3, 3, 4, 3), waits=2, before=met))
    assert (type(found), found.rank) == (Circle, 2)
    assert found.before.call.frame.line == 9


def test_of_a_call_that_only_one_column_makes_nobody_knows_who_is_right():
    logs = columns((1, 0, 2, 0), waits=2)
    found = diagnose(*logs)
    assert (type(found), found.rank) == (Circle, None)


def test_who_makes_fewer_groups_than_the_others_is_named():
    def at(rank, name, groups):
        made = {str(number): [0, 1] for number in range(groups)}
        return replace(waiting(rank, name), groups=made)

    found = diagnose(at(0, "new_group", 2), at(1, "new_group", 1))
    assert (found.symptom, found.rank) == (Symptom.GROUPS, 1)
    # Rank 0 has lost patience and left: how many it had made is not known.
    found = diagnose(at(0, "new_group", 0), at(1, "new_group", 2))
    assert not found or found.symptom is not Symptom.GROUPS
    # Here rank 1 is about to make what rank 0 already has.
    found = diagnose(at(0, "barrier", 2), at(1, "new_group", 1))
    assert found.symptom is Symptom.DIFFERENT_CALLS


def test_where_there_is_no_error_none_is_told():
    assert stacks.last_error("") == "" and stacks.from_text("") == []


def test_a_rank_waits_in_the_call_that_its_own_code_made_last():
    outer, inner = (waiting(0, name).stack for name in ("all_reduce", "send"))
    (stand,) = stands.find_stands([RankLog(stack=[*inner, *outer])])
    assert (stand.state, stand.name) == ("waits", "send")


def test_a_report_says_the_cause_first_and_the_others_last():
    why = Raised(rank=1, frame=Frame("a.py", 3, "f"), error="E: x")
    also, others = (Printed(error="y"),), {0: Raised(error="z")}
    failure = Failure("exception", why, also, "Trace\n", others)
    head = "rank 1: E: x\n  at a.py:3 in f\n  before, it printed a traceback: y\n"
    rest = "  rank 0: z"
    assert failure.report() == f"{head}\nTrace\n\n{rest}"
    assert failure.report(traceback=False) == head + rest


RECORDED = """Traceback (most recent call last):
  File "a.py", line 9, in <module>
    main()
  File "/torch/elastic/multiprocessing/errors/__init__.py", line 3, in wrapper
    return f(*args)
           ^^^^^^^^
  File "a.py", line 7, in main
    f()
    ^^^
"""


def test_a_traceback_tells_only_what_the_rest_does_not():
    last = '  File "a.py", line 3, in f\n    raise E("x")\n'
    at = Frame("a.py", 3, "f")
    failure = Failure("exception", Raised(rank=1, frame=at, error="E: x"))
    whole = replace(failure, traceback=f"{RECORDED}{last}E: x\n").report()
    assert "wrapper" not in whole and "<module>" not in whole
    assert "line 7, in main" in whole and "line 3, in f" in whole
    assert whole.count("E: x") == 1
    train = RECORDED.replace("main", "train")
    assert "wrapper" not in replace(failure, traceback=train + last).report()
    alone = replace(failure, traceback=f"{RECORDED}E: x\n").report()
    assert alone == "rank 1: E: x\n  at a.py:3 in f"


def call(file: str, name: str, source: str = "x") -> str:
    return f'  File "{file}", line 3, in {name}\n    {source}\n    ^\n'


LIGHTNING = "/v/lib/python3.11/site-packages/lightning/pytorch/trainer.py"
TORCH = "/v/lib/python3.11/site-packages/torch/nn/module.py"
FRAMEWORK = "Traceback (most recent call last):\n" + "".join(
    [
        call("train.py", "<module>"),
        call(LIGHTNING, "fit") * 12,
        "  [Previous line repeated 9 more times]\n",
        call("/usr/lib/python3.11/contextlib.py", "inner"),
        call("model.py", "training_step", "self.net(batch)"),
        call(TORCH, "_call_impl"),
        call(TORCH, "forward", "F.linear(x)"),
    ]
)


def test_of_a_framework_only_the_innermost_frame_is_shown():
    others = ["  … 13 frames of lightning, Python …", "  … 1 frame of torch …"]
    kept = [
        *call("train.py", "<module>").splitlines(),
        others[0],
        *call("model.py", "training_step", "self.net(batch)").splitlines(),
        others[1],
        *call(TORCH, "forward", "F.linear(x)").splitlines(),
    ]
    _, *shown = stacks.brief(f"{FRAMEWORK}E: x\n", "E: x").splitlines()
    assert shown == kept
    between = (
        "\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    chain = f"{FRAMEWORK}E: y\n{between}{FRAMEWORK}E: x\n"
    assert stacks.brief(chain, "E: x").splitlines()[1:].count(others[0]) == 2


def test_a_short_traceback_and_one_of_a_library_alone_stay_as_they_are():
    head, last = "Traceback (most recent call last):\n", call("train.py", "main")
    short = head + last + call(TORCH, "forward") * 5
    assert stacks.brief(f"{short}E: x", "E: x") == short.rstrip()
    library = head + call(TORCH, "forward") * 30
    assert stacks.brief(f"{library}E: x", "E: x") == library.rstrip()


def test_a_traceback_of_a_framework_is_kept_whole():
    def call_itself(depth):
        if depth:
            return call_itself_later(depth)
        raise ValueError("no such sample")

    def call_itself_later(depth):
        return call_itself(depth - 1)

    try:
        call_itself(25)
    except ValueError as error:
        assert "left out" not in errors.raised(error)["traceback"]


def test_ranks_that_failed_alike_are_told_together():
    others = {rank: Raised(error="E: " + "x" * 200) for rank in (0, 2)}
    others[3] = Raised(error="z")
    failure = Failure("exception", replace(others[0], rank=1), by_rank=others)
    _, *rest = failure.report().splitlines()
    assert rest == ["  ranks 0 and 2: the same", "  rank 3: z"]


def test_a_long_message_is_cut_between_two_words():
    assert shorten("a message of some words", 14) == "a message of…"
    assert shorten("a message", 9) == "a message"
    assert shorten("x" * 20, 14) == "x" * 13 + "…"


def test_a_run_that_was_stopped_by_hand_says_so():
    log = TorchrunLog([RankLog(["a line"]), RankLog()])
    failure, codes = find_failure(log, -2, "interrupt", 0)
    assert failure.why == Stopped(by="interrupt", limit=failure.why.limit)
    assert [stand.printed for stand in failure.by_rank.values()] == ["a line", ""]
    assert codes == [None, None]


def test_who_waits_for_a_future_of_torch_waits(tmp_path):
    (tmp_path / "a.py").write_text("fut.wait()\n")
    for value, name in (("<Future at 0x1>", "Work.wait"), ("<Event at 0x1>", "")):
        frame = Frame(str(tmp_path / "a.py"), 1, "main", {"fut": value})
        (stand,) = stands.find_stands([RankLog(stack=[frame])])
        assert stand.name == name


def test_what_a_program_raises_is_its_own_unless_it_quotes_torch(tmp_path):
    (tmp_path / "a.py").write_text("raise RuntimeError(words)\n")
    frames = [Frame(str(tmp_path / "a.py"), 1, "main")]
    for words, gave_up in (
        ("no upload: Connection reset by peer", False),
        ("a thread: [gloo/transport/tcp/pair.cc:1] Connection reset by peer", True),
    ):
        raised = Uncaught(f"RuntimeError: {words}", frames=frames)
        assert RankLog(code=1, raised=raised).heard.gave_up is gave_up

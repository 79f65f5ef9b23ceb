"""%%puzzle: what is drawn of the reader's lines, and what is said beside the target."""

import re
from dataclasses import replace

import pytest

from ddp_lab.kit.cell import program, puzzle
from ddp_lab.kit.draw.traces import Trace, beside, differences
from whichrank.explain.causes.ended import Raised
from whichrank.explain.failure import Failure
from whichrank.run.result import Run

SWAP = Trace(
    [[["send", 1, "10"], ["recv", 1, ""]], [["send", 0, "20"], ["recv", 0, ""]]],
    [[20], [10]],
)
UNDER_WAY = "a message is still under way: wait() for each isend and irecv"
NOTHING = Trace([[], []], [None, None])


def turns(trace):
    return [(step.turn, str(step.acts[0]), step.done) for step in trace.steps]


def run(cause="", where="swap", **facts):
    """Return a run whose two ranks told `facts`, each a trace; it failed in `where`."""
    told = [
        {
            name: {"calls": trace.did[rank], "holds": trace.holds[rank]}
            for name, trace in facts.items()
        }
        for rank in range(2)
    ]
    why = Raised(rank=0, error=cause or "")
    trace = f'File "puzzle.py", line 9, in {where}\n    got'
    failure = Failure("exception", why, traceback=trace) if cause else None
    return Run("torchrun puzzle.py", [[], []], told, [[], []], [0, 0], 0.3, failure)


def said(run):
    """Return the lines below the picture."""
    return puzzle.shown(run, "swap")["text/plain"].splitlines()[1:]


# --- traces ---


def test_messages_that_wait_for_nothing_are_of_one_turn():
    assert turns(SWAP) == [(0, "0 → 1: 10", True), (0, "1 → 0: 20", True)]


def test_a_token_takes_a_turn_for_each_rank():
    line = Trace(
        [
            [["send", 1, "1"]],
            [["recv", 0, ""], ["send", 2, "3"]],
            [["recv", 1, ""]],
        ],
        [None, None, 3],
    )
    assert turns(line) == [(0, "0 → 1: 1", True), (1, "1 → 2: 3", True)]


def test_receives_that_were_begun_before_the_sends_are_no_circle():
    early = Trace([acts[::-1] for acts in SWAP.did], SWAP.holds)
    assert [done for _, _, done in turns(early)] == [True, True]
    assert not early.acts - SWAP.acts


def test_a_send_without_its_recv_is_not_done():
    alone = Trace([[["send", 1, "10"]], []], [None, None])
    assert turns(alone) == [(0, "0 → 1: 10", False)]
    assert differences(SWAP, alone) == ["rank 0 waits in send to rank 1"]


def test_a_call_of_all_ranks_is_one_step_if_all_make_it():
    sums = [["all_reduce", None, "1"]], [["all_reduce", None, "2"]]
    (step,) = Trace(sums, [3, 3]).steps
    assert step.done and [act.rank for act in step.acts] == [0, 1]
    (step,) = Trace([sums[0], []], [None, None]).steps
    assert not step.done and step.acts[0].waits == "rank 0 waits in all_reduce"


def test_what_differs_is_said():
    assert differences(SWAP, SWAP) == []
    other = Trace([[["send", 1, "11"], SWAP.did[0][1]], SWAP.did[1]], [[20], [11]])
    assert differences(SWAP, other) == [
        "missing: 0 → 1: 10",
        "not in the target: 0 → 1: 11",
        "rank 1 holds 11; the target is 10",
    ]
    silent = differences(SWAP, NOTHING)
    assert "rank 0 holds nothing; the target is 20" in silent and len(silent) == 4


def test_another_order_is_said():
    acts = [["write", None, "piece"], ["write", None, ".metadata"]]
    right, wrong = Trace([acts], [None]), Trace([acts[::-1]], [None])
    assert differences(right, wrong) == ["rank 0 has another order"]


def test_a_message_sent_twice_is_one_too_many():
    twice = Trace([[*SWAP.did[0], SWAP.did[0][0]], SWAP.did[1]], SWAP.holds)
    assert differences(SWAP, twice) == ["rank 0 waits in send to rank 1"]
    heard = Trace([twice.did[0], [*SWAP.did[1], SWAP.did[1][1]]], SWAP.holds)
    assert differences(SWAP, heard) == ["not in the target: 0 → 1: 10"]


# --- pictures ---


def test_an_unsolved_puzzle_shows_the_target_alone():
    picture = beside("swap", SWAP, None)
    assert "yours" not in str(picture) and "yours" not in picture.desc
    assert "0 → 1: 10" in picture.desc and "rank 1 holds 10" in picture.desc


def test_what_differs_is_marked_and_what_does_not_is_not():
    assert "C0392B" not in str(beside("swap", SWAP, SWAP))
    other = Trace(SWAP.did, [[20], [11]])
    assert str(beside("swap", SWAP, other)).count("C0392B") == 1


def test_both_stand_below_each_other_where_the_page_is_too_narrow():
    long = Trace([[["own", None, "x" * 60]]] * 2, [None] * 2)
    narrow, wide = beside("a", SWAP, SWAP), beside("a", long, long)
    assert narrow.height < wide.height <= 2.2 * narrow.height


def test_the_same_trace_gives_the_same_picture():
    assert str(beside("swap", SWAP, NOTHING)) == str(beside("swap", SWAP, NOTHING))


# --- verdicts ---


def test_not_yet_is_no_failure():
    bundle = puzzle.shown(run(target=SWAP), "swap")
    assert said(run(target=SWAP)) == ["not yet: only the target is shown; hint() helps"]
    assert bundle["text/html"].count("<img") == 1
    assert not re.search(r"class=|<style|<script", bundle["text/html"])


def test_right_is_said_so():
    assert said(run(target=SWAP, yours=SWAP)) == ["✓ as the target"]


def test_a_difference_is_said_and_no_error_is_raised():
    other = Trace(SWAP.did, [[20], [11]])
    wrong = run("AssertionError: ranks [1] differ", target=SWAP, yours=other)
    assert said(wrong) == ["✗ rank 1 holds 11; the target is 10"]


def test_what_is_right_only_once_is_told_by_the_program():
    wrong = run("AssertionError: right with these numbers", target=SWAP, yours=SWAP)
    assert "right with these numbers" in said(wrong)[0]


def test_an_exception_comes_first():
    wrong = run("NameError: name 'x' is not defined", target=SWAP, yours=NOTHING)
    assert "NameError: name 'x'" in said(wrong)[0]
    assert "NameError" in said(replace(wrong, facts=run(target=SWAP).facts))[0]


def test_a_message_that_is_not_waited_for_is_told_though_it_is_drawn():
    wrong = run("Timeout (0:00:03)!", target=SWAP, yours=SWAP)
    assert said(wrong) == [f"✗ {UNDER_WAY}"]
    del wrong.facts[0]["yours"]["holds"]  # as long as its lines have not returned
    assert said(wrong)[:2] == ["✗ rank 0 waits in recv from rank 1", f"✗ {UNDER_WAY}"]


def test_what_the_frame_cannot_read_is_told_as_returned():
    wrong = run("TypeError: 'int' object is not iterable", "attempt", target=SWAP)
    assert said(wrong)[0] == "✗ what swap returned cannot be used:"


def test_many_differences_are_cut():
    other = Trace([[], []], [5, 6])
    wrong = run("AssertionError: all", target=SWAP, yours=other)
    assert said(wrong)[-1] == "and 1 more" and len(said(wrong)) == 3 + 1


def test_a_run_without_a_target_is_shown_as_any_other():
    bundle = puzzle.shown(run("ValueError: early"), "swap")
    assert "ValueError: early" in bundle["text/plain"]


# --- the cell ---


def keep(monkeypatch, bundles):
    """Keep what cells show at last."""
    screen = puzzle.screen.Screen
    monkeypatch.setattr(screen, "update", lambda *_: None)
    monkeypatch.setattr(screen, "show", lambda _, bundle: bundles.append(bundle))


def test_its_frame_has_the_name_of_the_program():
    cell = "%%puzzle --nproc-per-node 4 ddp_lab/p2p/puzzle_swap.py\ndef swap(): pass"
    order, text = program.ordered(cell)
    assert order.path == "ddp_lab/p2p/puzzle_swap.py"
    assert order.other == "ddp_lab/p2p/frames/puzzle_swap.py"
    assert order.options == "--nproc-per-node 4" and text == "def swap(): pass"


@pytest.mark.processes
def test_a_constant_for_the_number_of_ranks_is_not_right(monkeypatch, tmp_path):
    bundles = []
    monkeypatch.chdir(tmp_path)
    keep(monkeypatch, bundles)
    for ranks in ("3", "world_size"):
        cell = "def step(weight, grad, rate, world_size):\n    dist.all_reduce(grad)\n"
        cell += f"    return weight - rate * grad / {ranks}"
        puzzle.puzzle("--nproc-per-node 3 ddp_lab/ddp/puzzle_step.py", cell)
    constant, right = (bundle["text/plain"].splitlines()[1:] for bundle in bundles)
    assert constant[0] == "✗ right with 3 ranks, and not with these:"
    assert constant[1].startswith("✗ rank 0 holds ")
    assert right == ["✓ as the target"]


@pytest.mark.processes
def test_a_cell_is_run_and_drawn(monkeypatch, tmp_path):
    bundles = []
    monkeypatch.chdir(tmp_path)
    keep(monkeypatch, bundles)
    line = "--nproc-per-node 2 ddp_lab/p2p/puzzle_swap.py"
    stub = "def swap(mine, rank, partner):\n    return None"
    sends = stub.replace("return None", "dist.send(mine, partner)")
    raises = stub.replace("return None", "return mine.no_such")
    forgets = sends.replace("dist.", "dist.irecv(mine.clone(), partner)\n    dist.")
    for cell in (stub, sends, raises, forgets):
        puzzle.puzzle(line, cell)
    texts = [bundle["text/plain"] for bundle in bundles]
    assert texts[0].endswith("not yet: only the target is shown; hint() helps")
    assert "yours" not in texts[0]
    assert "✗ rank 0 waits in send to rank 1" in texts[1]
    assert "AttributeError" in texts[2]
    assert f"✗ {UNDER_WAY}" in texts[3]
    assert (tmp_path / "ddp_lab/p2p/puzzle_swap.py").is_file()

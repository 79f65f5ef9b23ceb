"""Faults at random: drawn alike each time, judged by the truth, and some that happen.

`python -m tests.random_faults` lets more of them happen than a test has time for.
"""

import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from conftest import FULL

from ddp_lab.kit import RunFailed
from tests import random_programs
from tests.random_faults import (
    WRONG,
    Summary,
    Told,
    Truth,
    Verdict,
    _ended,
    _launched,
    happen_all,
    judge,
    truth,
)
from tests.random_programs import DEEDS, NOTHING, PLACES, Fault, Option, draw

SEED, COUNT, JOBS = 7, 100, 4  # three minutes on two cores


def named(axis, name: str):
    """Return the value of an axis that has this name."""
    return next(option for option in axis if option.name == name)


def fault(deed: str, place: str = "in a step", **more) -> Fault:
    """Return a fault of rank 1 of three, and nothing else that is odd."""
    usual = Option("", 1)
    known = {"deed": named(DEEDS, deed), "place": named(PLACES, place)}
    known |= {"exchange": random_programs.EXCHANGES[0]}
    known |= {"ranks": 3, "who": 1, "second": NOTHING, "second_who": 2}
    known |= {"on_loss": usual, "on_sigterm": usual}
    return replace(draw(0, 0), **(known | more))


# --- drawing ---


def test_a_number_stands_for_the_same_fault_each_time():
    first = [draw(SEED, number) for number in range(50)]
    assert first[::-1] == [draw(SEED, number) for number in reversed(range(50))]
    assert first != [draw(SEED + 1, number) for number in range(50)]
    assert len({str(fault) for fault in first}) > 45


def test_every_value_of_every_axis_is_drawn():
    faults = [draw(SEED, number) for number in range(600)]
    axes = {"cold": "COLDS", "record": "RECORDS", "place": "PLACES"}
    axes |= {"restarts": "RESTARTS", "exchange": "EXCHANGES", "deed": "DEEDS"}
    axes |= {"on_sigterm": "ON_SIGTERM", "on_loss": "ON_LOSS", "noise": "NOISES"}
    axes |= {"left": "LEFT"}
    for name, axis in axes.items():
        drawn = {getattr(fault, name).name for fault in faults}
        assert drawn == {option.name for option in getattr(random_programs, axis)}
    assert 20 < sum(not fault.alone for fault in faults) < 150


def test_every_program_is_one():
    for number in range(300):
        text = draw(SEED, number).program()
        compile(text, "sick.py", "exec")
        assert not [line for line in text.splitlines() if line.strip().startswith("#")]


# --- the truth ---


@pytest.mark.parametrize(
    "fault, ranks, fails",
    [
        (fault("raises"), {1}, True),
        (fault("raises", "in a thread"), set(), False),  # which ends the thread alone
        (fault("exits with 3", "at exit"), set(), False),  # where Python ignores it
        (fault("exits at once with 5", "in a thread"), {1}, True),
        (fault("leaves", "after init"), {1}, True),
        (fault("leaves", "after destroy"), set(), False),
        (fault("skips an exchange"), {1}, True),
        (fault("skips an exchange", ranks=2), {0, 1, None}, True),
        (fault("sleeps", "at exit"), {1}, True),
        (fault("raises", second=DEEDS[1], delay=0.3), {1}, True),
        (fault("raises", second=DEEDS[1], delay=0.05), {1, 2}, True),
    ],
    ids=str,
)
def test_the_truth(fault, ranks, fails):
    known = truth(fault)
    assert (set(known.ranks), known.fails) == (ranks, fails)


def test_who_survives_a_lost_connection_may_succeed_but_not_after_an_error():
    survive = named(random_programs.ON_LOSS, "survive a lost connection")
    assert truth(fault("leaves", on_loss=survive)).succeeds
    assert not truth(fault("raises", on_loss=survive)).succeeds


# --- judging ---

RIGHT = Told(1, True, 1, 'raise ValueError("bad")', "rank 1: ValueError: bad")
FAILS = Truth(ranks=frozenset([1]), line="raise", says="ValueError: bad")
SUCCEEDS = Truth(fails=False, succeeds=True, warning="old", note="rank 1")
WELL = Told(1, warnings="this is old", notes="rank 1 has left")


def test_what_is_right_is_right():
    assert judge(FAILS, RIGHT) == []
    assert judge(SUCCEEDS, WELL) == []


@pytest.mark.parametrize(
    "known, told, wrong",
    [
        (FAILS, replace(RIGHT, rank=0), "rank"),
        (FAILS, replace(RIGHT, rank=None), "rank"),
        (FAILS, replace(RIGHT, line="import torch"), "line"),
        (FAILS, replace(RIGHT, report="rank 1: exit code 1"), "cause"),
        (FAILS, replace(RIGHT, survivors=("1 sleep",)), "survivors"),
        (FAILS, replace(RIGHT, trouble="OSError"), "trouble"),
        (FAILS, WELL, "false success"),
        (SUCCEEDS, RIGHT, "false failure"),
        (SUCCEEDS, replace(WELL, notes=""), "note"),
        (SUCCEEDS, replace(WELL, warnings=""), "warning"),
        (SUCCEEDS, replace(WELL, survivors=("1 sleep",)), "survivors"),
    ],
)
def test_a_wrong_word_is_noticed(known, told, wrong):
    assert judge(known, told) == [wrong]
    assert wrong in WRONG


def test_a_headline_that_is_no_cause_is_noticed():
    report = "rank 1: Traceback (most recent call last):\n  ValueError: bad"
    assert judge(FAILS, replace(RIGHT, report=report)) == ["cause"]


def test_the_table_counts_and_says_how_to_repeat():
    sick = fault("raises")
    verdicts = [Verdict(replace(sick, number=n), RIGHT, []) for n in range(3)]
    verdicts.append(Verdict(replace(sick, number=42), RIGHT, ["rank"]))
    verdicts.append(Verdict(replace(sick, number=43), WELL, ["false success"]))
    summary = Summary(verdicts)
    assert summary.right_rank == 0.75
    assert summary.wrong("false success") == [43]
    assert "   1 another rank was named  --only 42\n" in str(summary)


def test_a_launcher_that_has_no_run_to_tell_of_is_in_trouble(monkeypatch, tmp_path):
    def fails(*_, **__):
        raise RunFailed("the launcher: it has not returned", None)

    monkeypatch.setattr("tests.random_faults.torchrun", fails)
    told = _launched(fault("raises"), tmp_path / "sick.py")
    assert "has not returned" in told.trouble and not told.failed


@pytest.mark.processes
def test_a_survivor_is_noticed_and_ended(tmp_path):
    for name in ("ranks", "children"):
        (tmp_path / name).mkdir()
    (tmp_path / "sick.py").touch()
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    sleeper = subprocess.Popen(words, env={}, start_new_session=True)
    try:
        assert not list(_ended(tmp_path))
        (tmp_path / "children" / str(sleeper.pid)).touch()
        assert [str(sleeper.pid)] == [who.split()[0] for who in _ended(tmp_path)]
        assert sleeper.wait(5) < 0
    finally:
        sleeper.kill()
    assert not psutil.pid_exists(sleeper.pid)


# --- faults that happen ---


@FULL
@pytest.mark.alone
@pytest.mark.processes
def test_faults_at_random_are_told_rightly():
    verdicts = list(happen_all(SEED, range(COUNT), JOBS))
    summary = Summary(verdicts)
    table = "\n".join(str(v) for v in verdicts if v.wrong) + f"\n{summary}"
    assert summary.right_rank >= 0.99, table
    for name in ("survivors", "false success", "false failure", "trouble"):
        assert not summary.wrong(name), table

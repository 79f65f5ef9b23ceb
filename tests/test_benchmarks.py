"""The benchmarks run, and reckon rightly; what they measure no test can say."""

import json
import sys

import pytest
from support import FULL

from bench import Result, Timing, interleaved, launch, three_digits, written
from bench import __main__ as command
from bench import data as images
from ddp_lab import ROOT
from ddp_lab.data import prepare
from ddp_lab.kit import torchrun

PROGRAMS = ROOT / "bench" / "programs"


def test_competitors_take_turns_and_the_first_turn_does_not_count():
    turns = []
    first, second = interleaved(
        {"a": lambda: turns.append("a"), "b": lambda: turns.append("b") or 2.5}, 3
    )
    assert turns == ["a", "b"] * 4
    assert len(first.seconds) == 3
    assert second.seconds == [2.5] * 3  # a competitor may keep the time itself
    turns.clear()
    (only,) = interleaved({"a": lambda: turns.append("a")}, 2, warm=0)
    assert len(only.seconds) == len(turns) == 2


def test_a_ratio_is_that_of_pairs():
    slow, fast = Timing("slow", [2.0, 9.0, 40.0]), Timing("fast", [1.0, 3.0, 10.0])
    assert fast.ratio(slow) == (3.0, 2.0, 4.0)


def test_a_row_says_the_time_the_ratio_and_the_rate():
    slow, fast = Timing("slow", [2.0]), Timing("fast", [0.0005])
    rates = {"fast": {"images/s": 2000.4}}
    rows = Result("data", "one image", [slow, fast], rates).rows()
    assert rows[0][2:] == ["slow", "2 s (2 s to 2 s)", "", ""]
    times, ratio = "500 µs (500 µs to 500 µs)", "4000.00 (4000.00 to 4000.00)"
    assert rows[1][2:] == ["fast", times, ratio, "2,000 images/s"]


@pytest.mark.parametrize(
    ("number", "text"), [(0.0012345, "0.00123"), (999.6, "1,000"), (2613, "2,610")]
)
def test_three_digits_count(number, text):
    assert three_digits(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(61.24, "61.2 s"), (0.1, "100 ms"), (2e-8, "0.02 µs")]
)
def test_a_time_has_its_unit(seconds, text):
    assert written(seconds) == text


@pytest.mark.processes
def test_the_floor_notices_a_rank_that_fails(monkeypatch, tmp_path, capfd):
    program = tmp_path / "sick.py"
    program.write_text("import os; os._exit(int(os.environ['RANK']))")
    monkeypatch.setattr(launch, "PROGRAM", program)
    with launch.floor(2) as forked, pytest.raises(ValueError):
        forked()
    assert "the ranks ended with [0, 256]" in capfd.readouterr().err


@FULL
@pytest.mark.processes
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_collectives_are_timed_at_every_size(ranks):
    run = torchrun(f"--nproc-per-node {ranks} {PROGRAMS / 'collectives.py'} 1")
    for by_size in run["seconds"]:
        assert list(by_size) == [str(2**power) for power in (10, 14, 18, 22, 26)]
        for by_name in by_size.values():
            assert list(by_name) == ["all_reduce", "our ring", "memcpy"]


@FULL
@pytest.mark.processes
def test_a_ring_that_forgets_a_step_is_noticed(tmp_path):
    text = (PROGRAMS / "collectives.py").read_text()
    path = tmp_path / "wrong.py"
    path.write_text(text.replace("in range(2 * (world_size - 1))", "in range(1)"))
    run = torchrun(f"--nproc-per-node 2 {path} 1", expect_failure=True)
    assert "our ring of 1024 bytes" in run.failure.cause


def few(variant) -> str:
    """Return the program that times how images are read, with few of them."""
    numbers = "IMAGES, BATCH = 4096, 256", "IMAGES, BATCH = 512, 64"
    return variant(PROGRAMS / "data.py", *numbers)


@FULL
@pytest.mark.processes
def test_the_old_page_and_both_ways_to_load_run(variant):
    data = prepare().root
    path = variant(PROGRAMS / "baseline.py", "BATCH = 256", "BATCH = 16")
    run = torchrun(f"--nproc-per-node 2 {path} {data} 1")
    assert run["images"] == [16, 16]
    run = torchrun(f"--nproc-per-node 1 {few(variant)} {data} 1")
    assert len(run["seconds"][0]) == 3


@FULL
@pytest.mark.processes
def test_the_trace_of_a_step_shows_that_communication_overlaps(tmp_path):
    trace = tmp_path / "step.json.gz"
    torchrun(f"--nproc-per-node 2 {PROGRAMS / 'step.py'} {trace}")
    assert trace.stat().st_size < 1_000_000


@FULL
@pytest.mark.processes
def test_the_command_writes_json_and_a_picture(tmp_path, monkeypatch, capsys, variant):
    monkeypatch.setattr(images, "PROGRAM", few(variant))
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path.parent)
    monkeypatch.setattr(sys, "argv", ["bench", "--rounds", "1", "data"])
    command.main()
    shown = capsys.readouterr().out
    assert "windows of one tensor" in shown and " images/s" in shown
    content = json.loads((tmp_path / "data.json").read_text())
    assert content["machine"]["cores"] and content["results"][0]["rates"]
    assert (tmp_path / "data.png").stat().st_size > 1000

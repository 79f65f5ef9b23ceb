"""What a run prints, followed while it goes on: for a terminal, and for a cell."""

import os
from dataclasses import replace

import pytest

from whichrank.record import stderr
from whichrank.record.tail import BLOCK, LAST_LINES, Latest, Tail
from whichrank.run.result import Run
from whichrank.terminal.follow import Output


class Files:
    """The files of a run, which grow."""

    def __init__(self, folder):
        self.folder, self.open = folder, {}

    def print(self, text, rank=0, attempt=0, file="stdout.log"):
        home = self.folder / "run" / f"attempt_{attempt}" / str(rank)
        path = self.folder / file if file in ("out", "err") else home / file
        if path not in self.open:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.open[path] = open(path, "wb", buffering=0)  # noqa: SIM115
        self.open[path].write(text.encode())
        return path


@pytest.fixture
def files(tmp_path):
    found = Files(tmp_path)
    yield found
    for file in found.open.values():
        file.close()


@pytest.fixture
def terminal(files, capsys):
    """Return a function: what the terminal has shown since the last time."""
    output = Output(by_rank=True)
    going_on = Run("", [], [], [], [], 0.0, None, log_folder=files.folder)

    def show(ended: bool = False) -> list[str]:
        output.update(replace(going_on, code=0) if ended else going_on)
        return capsys.readouterr().out.splitlines()

    yield show
    output.tail.close()


@pytest.fixture
def cell(files):
    """Return a function: the last lines of each rank."""
    latest = Latest(Tail(files.folder, by_rank=True), 1000)
    yield lambda: [log.lines for log in latest.ranks()]
    latest.tail.close()


def test_a_line_is_handed_out_once_and_whole(files, terminal, cell):
    files.print("one\ntw")
    assert (terminal(), cell()) == (["[rank 0] one"], [["one", "tw"]])
    files.print("o\nthree")
    assert (terminal(), cell()) == (["[rank 0] two"], [["one", "two", "three"]])
    assert (terminal(), cell()) == ([], [["one", "two", "three"]])
    assert terminal(ended=True) == ["[rank 0] three"]
    assert terminal(ended=True) == []


def test_each_line_belongs_to_its_rank_however_it_names_itself(files, terminal, cell):
    files.print("[rank 1] a [rank 1] b\n[rank 0] c\n\n", rank=1)
    shown = ["[rank 1] a [rank 1] b", "[rank 1] [rank 0] c", "[rank 1] "]
    assert terminal() == shown
    files.print("first\n")
    assert cell() == [["first"], ["[rank 1] a [rank 1] b", "[rank 0] c"]]


def test_of_a_progress_bar_the_last_state_counts(files, terminal, cell):
    files.print("\r 1 %\r 2 %")
    assert (terminal(), cell()) == (["[rank 0]  2 %"], [[" 2 %"]])
    files.print("\r 3 %\r")
    assert (terminal(), cell()) == ([], [[" 3 %"]]), "not again so soon"
    files.print("\r 4 %\r\nready\r\n")
    assert (terminal(), cell()) == (
        ["[rank 0]  4 %", "[rank 0] ready"],
        [[" 4 %", "ready"]],
    )


def test_what_a_rank_prints_is_followed_although_it_removes_the_file(
    files, terminal, cell
):
    path = files.print("before\n")
    assert (terminal(), cell()) == (["[rank 0] before"], [["before"]])
    path.unlink()
    files.print("after\n")
    assert (terminal(), cell()) == (["[rank 0] after"], [["before", "after"]])


@pytest.mark.parametrize("appends", [True, False])
def test_a_file_that_a_rank_empties_begins_anew(files, terminal, cell, appends):
    path = files.print("a long line before\nand a half")
    terminal(), cell()
    os.truncate(path, 0)
    terminal(), cell()
    if appends:
        files.open[path].seek(0)
    files.print("after\n")  # else there is a gap of zeros
    assert terminal() == ["[rank 0] after"]
    assert cell() == [["a long line before", "after"]]


def test_a_cell_shows_the_last_attempt_and_a_terminal_all(files, terminal, cell):
    files.print("first, rank 1\n", rank=1)
    files.print("first")
    assert terminal() == ["[rank 1] first, rank 1"]
    cell()
    files.print("second\n", attempt=1)
    assert cell() == [["second"]]
    assert terminal(ended=True) == ["[rank 0] first", "[rank 0] second"]


def test_a_terminal_shows_all_of_a_long_output_and_a_cell_its_end(files, terminal):
    lines = [f"{n} {'x' * 90}" for n in range(2 * BLOCK // 90)]
    files.print("\n".join(lines) + "\n")
    assert terminal() == [f"[rank 0] {line}" for line in lines]
    latest = Latest(Tail(files.folder, by_rank=True), 1000)
    (log,) = latest.ranks()
    assert log.lines[-9:] == lines[-9:] and len(log.lines) < 12
    for n in range(100):
        files.print("".join(f"{n} {m}\n" for m in range(9)))
        (log,) = latest.ranks()
    assert log.lines[-1] == "99 8" and len(log.lines) == LAST_LINES
    latest.tail.close()


def test_a_line_without_an_end_does_not_fill_the_memory(files):
    latest = Latest(Tail(files.folder, by_rank=True), 1000)
    for _ in range(50):
        files.print("." * 500)
        latest.ranks()
    assert latest.ranks()[0].lines == ["." * 1000]
    latest.tail.close()


def test_stderr_facts_and_noise_are_told_apart(files):
    files.print('{"loss": 2}\nline\n[Gloo] Rank 0 is connected\n')
    files.print("careful\n\n", file="stderr.log")
    latest = Latest(Tail(files.folder, by_rank=True), 1000)
    (log,) = latest.ranks()
    assert (log.facts, log.lines, log.warnings) == ({"loss": 2}, ["line"], ["careful"])
    latest.tail.close()


def test_lines_of_a_program_without_torchrun_name_their_rank(files):
    latest = Latest(Tail(files.folder, by_rank=False), 1000)
    assert [log.lines for log in latest.ranks()] == [[]]
    files.print("start\n[rank 1] one\n[rank 0] zero\n", file="out")
    files.print("careful\n", file="err")
    first, second = latest.ranks()
    assert first.lines == ["start", "[rank 0] zero"] and first.warnings == ["careful"]
    assert second.lines == ["[rank 1] one"]
    latest.tail.close()


def test_what_python_adds_to_an_error_goes_with_its_traceback():
    traceback = """Traceback (most recent call last):
  File "train.py", line 2, in <module>
    print(valu)
NameError: name 'valu' is not defined"""
    printed = f"careful\n{traceback}. Did you mean: 'value'?\nafter\n"
    assert stderr.without(printed, traceback) == "careful\nafter\n"

"""%%ranks: a few lines on ranks, and cells that go on where others ended."""

import re
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from ddp_lab import ROOT
from ddp_lab.kit import launch
from ddp_lab.kit.cell import ranks
from ddp_lab.kit.cell.changes import ProgramError
from whichrank import RunFailed

pytestmark = pytest.mark.processes


@pytest.fixture
def cell(monkeypatch, tmp_path):
    """Return what runs a cell, in a kernel that has run none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "so_far", None)

    def start(command):
        return launch.torchrun(command, timeout=ranks.PATIENCE)

    def run(line, *lines):
        return ranks.ranks(line.split(), "\n".join(lines), start)

    return run


def test_each_rank_shows_what_it_prints_and_its_last_expression(cell):
    run, picture = cell(
        "2",
        "x = torch.full((2,), float(rank), device=device)",
        "print(x.tolist())",
        "dist.all_reduce(x)",
        "x",
    )
    assert run.lines == [["[0.0, 0.0]"], ["[1.0, 1.0]"]]
    assert run["value"] == [[1, 1]] * 2
    assert picture.desc == "rank 0 1, 1; rank 1 1, 1." and picture.title == "x"
    run, picture = cell("", "x, rank")
    assert run["value"] == [[[1, 1], 0], [[1, 1], 1]] and picture
    run, picture = cell("", "{'rank': rank}")
    assert run.lines == [["{'rank': 0}"], ["{'rank': 1}"]] and picture is None
    run, picture = cell("", "y = 1")
    assert run.lines == [[], []] and picture is None


def test_a_cell_goes_on_where_the_one_before_ended(cell):
    first, _ = cell("2", "x = torch.rand(1)", "print('once')", "x")
    again, _ = cell("", "x")
    assert again.lines == [[], []], "what was printed before is not printed again"
    assert first["value"] == again["value"]
    one, other = first["value"]
    assert one != other, "each rank has random numbers of its own"
    cell("3", "y = rank")
    with pytest.raises(RunFailed, match="name 'x' is not defined"):
        cell("", "x")


def test_the_cell_in_the_readme_gives_what_is_drawn_there(cell):
    text = (ROOT / "README.md").read_text()
    line, *lines = re.search(r"%%ranks( 4\n.*?)\n```", text, re.S)[1].split("\n")
    _, picture = cell(line, *lines)
    assert str(picture) == (ROOT / "figs" / "ranks_cell.svg").read_text()


def test_numpy_repeats_its_numbers_as_well(cell):
    first, _ = cell("2", "import numpy", "a = numpy.random.rand()", "a")
    again, _ = cell("", "a")
    assert first["value"] == again["value"]


@pytest.mark.parametrize("leaves", ["exit()", "if rank == 1:\n    raise SystemExit"])
def test_a_cell_that_leaves_is_as_if_it_had_not_been(cell, leaves):
    cell("2", "x = rank")
    with pytest.raises(UsageError, match="left before the end of the cell"):
        cell("", "x = 7", leaves, "x")
    run, _ = cell("", "x")
    assert run["value"] == [0, 1]


def test_ranks_do_not_see_the_notebook(cell, monkeypatch):
    notebook = SimpleNamespace(user_ns={"batch": 8})
    monkeypatch.setattr(ranks, "get_ipython", lambda: notebook)
    for name, helps in (("batch", "do not see the notebook's batch"), ("x", "")):
        with pytest.raises(RunFailed) as failed:
            cell("2", name)
        assert helps in failed.value.help and bool(helps) == bool(failed.value.help)


def test_a_cell_that_failed_is_as_if_it_had_not_been(cell):
    cell("2", "x = rank")
    with pytest.raises(RunFailed) as failed:
        cell("", "x = 7", "if rank == 1:", "    raise ValueError('no')")
    assert failed.value.run.failure.rank == 1
    assert failed.value.run.failure.line == 4, "with the line of the magic"
    assert "ranks_" not in failed.value.run.failure.report(), (
        "only the cell's own lines"
    )
    run, _ = cell("", "x")
    assert run["value"] == [0, 1]


def test_a_hang_is_told_by_rank_and_line(cell, monkeypatch):
    with pytest.raises(RunFailed) as failed:
        cell("2", "if rank == 0:", "    dist.recv(torch.ones(1), 1)", "dist.barrier()")
    failure = failed.value.run.failure
    assert failure.kind == "timeout" and failed.value.run.seconds < 20
    assert "recv" in failure.report() and "barrier" in failure.report()


def test_what_is_no_cell_of_ranks_is_refused(cell):
    with pytest.raises(ProgramError, match=r"line 3\n.*\n.*\n.*SyntaxError"):
        cell("2", "x = 1", "x +")
    with pytest.raises(UsageError, match="on how many ranks"):
        cell("", "rank")
    with pytest.raises(UsageError, match="a number of ranks, not 'four'"):
        cell("four", "rank")
    with pytest.raises(UsageError, match="what the ranks do comes below"):
        cell("2", "# nothing")
    with pytest.raises(UsageError, match="a number of ranks, not '2 4'"):
        cell("2 4", "rank")
    with pytest.raises(UsageError, match="ranks run Python, not '!ls'"):
        cell("2", "!ls")

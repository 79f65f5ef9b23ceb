"""Programs that a fork would run otherwise than a shell start cold, and say so."""

import ast

import pytest
from conftest import PROGRAMS, name_of
from forked import let_torchrun_be_a_fork

from ddp_lab.kit import torchrun
from whichrank.run.cold import line_of_set_order, why_cold

IN_ORDER = {
    "a loop": "for name in {'a', 'b'}: send(name)",
    "a name": "names = set(words)\nfor name in names: send(name)",
    "of a name": "names = set(words)\nfew = names - seen\n[send(n) for n in few]",
    "an attribute": "self.names = frozenset(words)\nlist(self.names)",
    "a star": "send(*{n for n in words})",
    "a join": "', '.join({'a', 'b'})",
    "keys": "for name in state.keys() - {'step'}: send(name)",
}
IN_ANY_ORDER = {
    "sorted": "for name in sorted({'a', 'b'}): send(name)",
    "asked": "seen = set()\nfor n in words:\n    if n not in seen: seen.add(n)",
    "counted": "assert len({n for n in words}) == 1",
    "all of them": "assert all(n for n in {'a', 'b'})",
    "a dict": "for name in {'a': 1, 'b': 2}: send(name)",
}


@pytest.mark.parametrize("how", IN_ORDER)
def test_who_takes_a_set_in_order_is_seen(how):
    assert line_of_set_order([*ast.walk(ast.parse(IN_ORDER[how]))]) > 0


@pytest.mark.parametrize("how", IN_ANY_ORDER)
def test_who_does_not_see_the_order_is_left_alone(how):
    assert line_of_set_order([*ast.walk(ast.parse(IN_ANY_ORDER[how]))]) == 0


def test_the_modules_beside_a_program_are_read_as_well(tmp_path):
    program = tmp_path / "train.py"
    program.write_text("import helper\n")
    (tmp_path / "helper.py").write_text(IN_ORDER["a loop"])
    assert why_cold(program).startswith("helper.py:1 takes a set in order")


def test_the_files_that_a_program_names_are_read_as_well(tmp_path):
    cell, program = tmp_path / "cell.py", tmp_path / "ranks.py"
    cell.write_text(IN_ORDER["a loop"])
    program.write_text(f'"""Of\na.py"""\nCELLS = [{str(cell)!r}]\n')
    assert why_cold(program).startswith("cell.py:1 takes a set in order")


def test_the_programs_of_the_lessons_start_warm():
    reasons = {name_of(path): why_cold(path) for path in PROGRAMS}
    assert not {name: reason for name, reason in reasons.items() if reason}


@pytest.mark.processes
def test_ranks_hash_differently(tmp_path, monkeypatch):
    let_torchrun_be_a_fork(monkeypatch)
    program = tmp_path / "order.py"
    program.write_text("print([*{str(n) for n in range(20)}])")
    run = torchrun(f"--nproc-per-node 2 {program}")
    assert run.lines[0] != run.lines[1]
    assert "order.py:1 takes a set in order" in run.notes[0]


@pytest.mark.processes
def test_a_file_beside_a_program_hides_a_module_as_in_a_shell(tmp_path, monkeypatch):
    let_torchrun_be_a_fork(monkeypatch)
    (tmp_path / "calendar.py").write_text("ours = 'ours'")
    program = tmp_path / "train.py"
    program.write_text("import torch\nfrom calendar import ours\nprint(ours)")
    run = torchrun(f"--nproc-per-node 1 {program}")
    assert run.lines == [["ours"]]
    assert "calendar.py, beside the program, is named like a module" in run.notes[0]

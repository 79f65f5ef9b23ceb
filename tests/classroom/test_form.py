"""The assignments' programs have the form of the lessons', which a student knows."""

import ast
import re

import pytest
from course import solution, starter

from classroom.engine.assignment import LAB, home, names
from ddp_lab.kit.cell import end
from ddp_lab.kit.cell.compose import Order, whole

# An assignment's programs join by themselves; this is the end that they share.
JOINS = '"""Joins."""\n\n\ndef main():\n    with process_group():\n        pass\n'
END = whole(Order("ddp_lab/start/joins.py"), JOINS, {}.get).text.partition(end.RULE)[2]
PROGRAMS = {
    file: text
    for name in names()
    if home(name) == LAB
    for file, text in solution(name).items()
    if file != "diagnosis.py"  # which nobody runs
}
assert PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_those_of_the_lessons(name):
    own = PROGRAMS[name].partition(end.RULE)[2]
    # But for the rule line; a cell ends without a line end.
    assert own.partition("\n")[2].rstrip() == END.partition("\n")[2].rstrip()


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_joins_and_leaves_by_the_context_manager(name):
    own = PROGRAMS[name].partition(end.RULE)[0]
    assert own.count("    with process_group() as (rank, ") == 1
    assert not re.search(r"\bsetup\(|init_process_group|destroy_process_group", own)


@pytest.mark.parametrize("name", sorted({n for n in names() if home(n) == LAB}))
def test_every_gap_of_a_program_is_inside_a_function(name):
    """One that is not stops whoever fills in the others, and needs none there."""
    for file, text in starter(name).items():
        tree = ast.parse(text)
        if file not in PROGRAMS or len(tree.body) == 1:  # all of it is to be written
            continue
        classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
        for body in (tree, *classes):
            assert not any(isinstance(line, ast.Raise) for line in body.body)

"""The assignments' programs have the form of the lessons', which a student knows."""

import re

import pytest

from classroom.engine.assignment import LAB
from ddp_lab.kit.cell import end
from ddp_lab.kit.cell.program import Order, whole
from tools.notebooks import programs

# An assignment's programs join by themselves; this is the end that they share.
JOINS = '"""Joins."""\n\n\ndef main():\n    with process_group():\n        pass\n'
END = whole(Order("ddp_lab/start/joins.py"), JOINS, {}.get).text.partition(end.RULE)[2]
MARKS = re.compile(r"^ *### (BEGIN|END) SOLUTION\n", re.MULTILINE)
PROGRAMS = {
    path.name: MARKS.sub("", text)
    for notebook in sorted(LAB.glob("source/*/*.ipynb"))
    for path, text in programs(notebook)
    if path.name != "diagnosis.py"  # which nobody runs
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_those_of_the_lessons(name):
    own = PROGRAMS[name].partition(end.RULE)[2]
    assert own.partition("\n")[2] == END.partition("\n")[2]  # but for the rule line


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_joins_and_leaves_by_the_context_manager(name):
    own = PROGRAMS[name].partition(end.RULE)[0]
    assert own.count("    with process_group() as (rank, ") == 1
    assert not re.search(r"\bsetup\(|init_process_group|destroy_process_group", own)

"""The assignments' programs have the form of the lessons', which a student knows."""

import re

import pytest

from classroom.engine.assignment import LAB
from ddp_lab import ROOT
from tools.notebooks import programs

# What every program ends with begins below this line.
RULE = "# --- the same in every program"
MARKS = re.compile(r"^ *### (BEGIN|END) SOLUTION\n", re.MULTILINE)
PROGRAMS = {
    path.name: MARKS.sub("", text)
    for notebook in sorted(LAB.glob("source/*/*.ipynb"))
    for path, text in programs(notebook)
    if path.name != "diagnosis.py"  # which nobody runs
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_those_of_the_lessons(name):
    lesson = (ROOT / "ddp_lab" / "p2p" / "ring.py").read_text()
    assert RULE in lesson
    assert PROGRAMS[name].partition(RULE)[2] == lesson.partition(RULE)[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_joins_and_leaves_by_the_context_manager(name):
    own = PROGRAMS[name].partition(RULE)[0]
    assert own.count("    with process_group() as (rank, ") == 1
    assert not re.search(r"\bsetup\(|init_process_group|destroy_process_group", own)

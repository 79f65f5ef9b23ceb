"""A program with gaps is run in its notebook, and no cell of it raises."""

import pytest
from course import FULL, starter

from classroom.grading import judge
from ddp_lab.kit.cell import magics
from ddp_lab.kit.run.launch import RunFailed

PROGRAMS = [
    (assignment, name)
    for assignment in judge.assignments()
    for name in judge.module(assignment).PROGRAMS.values()
    if name != "diagnosis.py"  # which nobody runs
]
QUICK = [("split", "split.py"), ("clinic", "goal.py")]


@pytest.mark.parametrize(("assignment", "name"), PROGRAMS if FULL else QUICK)
def test_a_starter_does_not_raise(assignment, name, tmp_path):
    (tmp_path / name).write_text(starter(assignment)[name])
    run = magics.torchrun(f"--timeout 30 --nproc-per-node 3 {tmp_path / name}")
    assert run.failure is None or run.failure.cause == "NotImplementedError"


@pytest.mark.parametrize("words", ["ValueError", "NotImplementedError('no gloo')"])
def test_any_other_failure_does(words, tmp_path):
    (tmp_path / "fails.py").write_text(f"raise {words}\n")
    with pytest.raises(RunFailed):
        magics.torchrun(f"--timeout 30 --nproc-per-node 2 {tmp_path / 'fails.py'}")

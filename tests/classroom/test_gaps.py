"""A program with gaps is run in its notebook, and no cell of it raises."""

import pytest
from course import files_of, starter

from classroom.engine.assignment import names
from ddp_lab.kit.cell import magics
from whichrank import RunFailed

pytestmark = pytest.mark.sandbox

QUICK = "split.py", "goal.py"
PROGRAMS = [
    pytest.param(*case, marks=[] if case[1] in QUICK else [pytest.mark.full])
    for case in (
        (assignment, name)
        for assignment in names()
        for name in files_of(assignment).values()
        if name != "diagnosis.py"  # which nobody runs
    )
]


@pytest.mark.parametrize(("assignment", "name"), PROGRAMS)
def test_a_starter_does_not_raise(assignment, name, tmp_path):
    (tmp_path / name).write_text(starter(assignment)[name])
    run = magics.torchrun(f"--timeout 30 --nproc-per-node 3 {tmp_path / name}")
    assert run.failure is None or run.failure.cause == "NotImplementedError"


@pytest.mark.parametrize("words", ["ValueError", "NotImplementedError('no gloo')"])
def test_any_other_failure_does(words, tmp_path):
    (tmp_path / "fails.py").write_text(f"raise {words}\n")
    with pytest.raises(RunFailed):
        magics.torchrun(f"--timeout 30 --nproc-per-node 2 {tmp_path / 'fails.py'}")

"""An instructor's commands, as the Makefile has them, in a fresh clone."""

import nbformat
import pytest
from conftest import copied, install, make
from course import as_notebook, solution
from support import FULL

from classroom.engine import sandbox

pytestmark = [pytest.mark.sandbox, FULL]
pytest.importorskip("nbgrader", reason="the lessons do without it")


@pytest.mark.skipif(sandbox.available() is not None, reason="there is no sandbox here")
def test_from_make_release_to_make_grades(tmp_path):
    folder = install(copied(tmp_path))
    classroom = folder / "classroom"

    def run(*words: str) -> str:
        done = make(folder, *words)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("release", "A=ring")
    released = (classroom / "release" / "ring" / "ring.ipynb").read_text()
    solved = nbformat.writes(as_notebook("ring", solution("ring")))
    for student, text in {"anna": solved, "bert": released}.items():
        place = classroom / "submitted" / student / "ring"
        place.mkdir(parents=True)
        (place / "ring.ipynb").write_text(text)
    rows = [line.split() for line in run("grade", "A=ring", "ONLY=right").splitlines()]
    assert ["pass"] in [row[1:2] for row in rows if row[:1] == ["anna"]], rows
    assert not [row for row in rows if row[:1] == ["bert"] and "pass" in row], rows
    run("feedback", "A=ring")
    assert (
        "pass" in (classroom / "feedback" / "anna" / "ring" / "ring.html").read_text()
    )
    run("grades")
    assert "anna" in (classroom / "grades.csv").read_text()
    assert ".zip" in run("gradescope", "A=ring")

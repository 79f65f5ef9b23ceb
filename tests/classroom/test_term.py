"""A whole term, as the README has it: all assignments, twelve students, each step.

In `make test` are its parts: test_own_course.py takes the same road with an assignment
that is judged in no time, test_handout.py looks for what gives answers away.
"""

import csv
import json
import os
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

from course import as_notebook, changed, solution, starter  # noqa: E402
from nbformat import writes  # noqa: E402
from nbformat.v4 import new_code_cell  # noqa: E402

from classroom.engine import sandbox  # noqa: E402
from classroom.engine.assignment import (  # noqa: E402
    LAB,
    home,
    load,
    mistakes,
    names,
)
from ddp_lab import ROOT  # noqa: E402

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.full,
    pytest.mark.skipif(
        sandbox.available() is not None, reason="there is no sandbox here"
    ),
]
NAMES = [name for name in names() if home(name) == LAB]
RIGHT, WRONG = ("101", "102"), ("103", "104")  # the others have done nothing right
ABSENT = "111", "112"
ROSTER = "Student,ID,SIS User ID,SIS Login ID,Section\n" + "".join(
    f'"Doe, {number}",{number},s{number},,Tuesday\n' for number in range(101, 113)
)


def handed_in(name: str) -> dict[str, str]:
    """Return by student the text of a notebook."""
    first, *_, last = mistakes(name)
    answers = {
        "101": solution(name),
        "103": changed(name, *first.changes),
        "104": changed(name, *last.changes),
        "105": starter(name),
        "110": dict.fromkeys(load(name).PROGRAMS.values(), "return ("),
    }
    found = {who: writes(as_notebook(name, text)) for who, text in answers.items()}
    tampered = as_notebook(name, solution(name))
    tampered.cells.insert(0, new_code_cell("raise SystemExit('executed')"))
    for cell in tampered.cells:
        cell.metadata.get("nbgrader", {})["points"] = 100
    twice = as_notebook(name, starter(name))
    texts = [cell.source for cell in twice.cells if "%%writefile" in cell.source]
    twice.cells += [new_code_cell(f"{text}\n# again") for text in texts]
    found |= {"102": writes(tampered), "106": writes(twice)}
    return found | {"107": "no notebook", "108": "{}", "109": json.dumps([1])}


def test_a_term_from_release_to_grades(tmp_path):
    def run(*words: str, cwd=ROOT) -> str:
        env = {**os.environ, "DDP_LAB_COURSE": str(tmp_path)}
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "roster.csv").write_text(ROSTER)
    for name in NAMES:
        run("classroom.engine", "release", name)
        assert f"with {name}" in run("classroom.engine", "handout", name)
        place = tmp_path / "downloaded" / name / "archive"
        place.mkdir(parents=True)
        with zipfile.ZipFile(place / "submissions.zip", "w") as archive:
            for who, text in handed_in(name).items():  # as Canvas calls them
                archive.writestr(f"doe_{who}_9{who}_{name}.ipynb", text)
        run("nbgrader", "zip_collect", name, "--force", cwd=LAB)
        told = run("classroom.engine", "grade", name)
        assert "blocked" not in told and "could not" not in told, told
        run("classroom.engine", "feedback", name)
        pages = [*tmp_path.glob(f"feedback/*/{name}/{name}.html")]
        assert len(pages) == 10 and all("Why" in page.read_text() for page in pages)
    run("classroom.engine", "handout")
    with zipfile.ZipFile(tmp_path / "handout" / "ddp-lab-students.zip") as archive:
        given = {*archive.namelist()}
    assert given >= {f"ddp-lab/assignments/{name}/{name}.ipynb" for name in NAMES}
    run("classroom.extras.grades")
    most, *rows = csv.DictReader(open(tmp_path / "grades.csv"))
    points = {row["ID"]: [row[name] for name in NAMES] for row in rows}
    assert {most[name] for name in NAMES} == {"10"}
    assert [points[who] for who in RIGHT] == [["10"] * len(NAMES)] * len(RIGHT)
    assert all(float(found) < 10 for who in WRONG for found in points[who]), points
    for who in points.keys() - {*RIGHT, *WRONG}:
        expected = "" if who in ABSENT else "0"
        assert points[who] == [expected] * len(NAMES), who

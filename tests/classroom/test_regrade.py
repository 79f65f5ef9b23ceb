"""One criterion is judged anew for everybody; grades given by hand stay."""

import csv
import json
import runpy

import nbformat
import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

from course import as_notebook, cells, solution, starter  # noqa: E402
from nbgrader.api import Gradebook  # noqa: E402
from support import FULL  # noqa: E402
from test_course import Course  # noqa: E402

from classroom.engine import judge  # noqa: E402
from classroom.engine.__main__ import changes  # noqa: E402

pytestmark = pytest.mark.sandbox

SAYS = "\n\nCRITERIA['right'] = lambda rig, **case: {}\n"


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return a function that judges anna's ring in no time, and what it has tried."""
    monkeypatch.setattr(judge, "COURSE", tmp_path)
    tried: list[str] = []
    state = {"now": "fail"}

    def try_all(rig, cells, keep):
        tried[:] = [cell.name for cell in cells]
        for cell in cells:
            drawn = f"{rig.draw(1).integers(10**9)}"
            known = {"points": cell.points, "state": state["now"], "lines": [drawn]}
            keep(cell.name, known)
            if state["now"] == "broken off":
                raise KeyboardInterrupt

    programs = {"ring.py": "x = 1"}
    monkeypatch.setattr(judge, "try_all", try_all)
    monkeypatch.setattr(judge, "answers", lambda path, wanted: (programs, ""))

    def ask(now: str, **options) -> judge.Report:
        state["now"] = now
        tried.clear()
        return judge.judge("ring", "anna", unsafe=True, **options)

    ask.tried, ask.programs = tried, programs
    return ask


def test_one_criterion_is_judged_anew_and_the_rest_stays(judged):
    before = judged("fail")
    assert judged.tried == [cell.name for cell in cells("ring")]
    now = judged("pass", only=["bytes_sent"])
    assert judged.tried == ["bytes_sent"]
    assert [n for n, c in now.criteria.items() if c["state"] == "pass"] == judged.tried
    assert list(now.criteria) == list(before.criteria)
    points = {cell.name: cell.points for cell in cells("ring")}["bytes_sent"]
    assert changes(before, now) == f"bytes_sent FAIL → pass, 0 → {points:g} points"
    assert changes(now, judged("fail")) == "" and judged.tried == []  # it is on record
    assert judged("fail", again=True).score == 0  # so all are judged anew


def test_what_was_blocked_is_judged_again(judged):
    judged("fail", only=["bytes_sent"])
    judged("blocked", only=["bytes_sent"])
    assert judged("pass").criteria["bytes_sent"]["state"] == "pass"
    assert judged.tried == ["bytes_sent"]


def test_what_is_judged_is_saved_at_once(judged):
    with pytest.raises(KeyboardInterrupt):
        judged("broken off")
    first, *others = [cell.name for cell in cells("ring")]
    now = judged("pass")
    assert judged.tried == others and now.criteria[first]["state"] == "broken off"


def test_a_grading_draws_from_its_own_secret_that_the_report_names(judged, monkeypatch):
    """One report has one secret: what is judged anew has the cases of the rest."""
    assert runpy.run_path(judge.__file__)["SECRET"] != judge.SECRET
    before = judged("fail")
    monkeypatch.setattr(judge, "SECRET", "of the next")
    one = judged("pass", only=["bytes_sent"])
    drawn = [found["lines"] for found in one.criteria.values()]
    assert one.secret == before.secret and drawn == [drawn[0]] * len(drawn)
    anew = judged("pass", again=True)
    assert anew.secret == "of the next" and anew.criteria["right"]["lines"] != drawn[0]


def test_who_hands_in_anew_is_judged_by_all_criteria(judged):
    judged("fail")
    judged.programs["ring.py"] = "x = 2"
    judged("pass", only=["bytes_sent"])
    assert judged.tried == [cell.name for cell in cells("ring")]


def decide(course: Course, verdict: str) -> None:
    """Let criterion `right` say the same of everybody."""
    path = course.classroom / "assignments" / "ring" / "criteria.py"
    path.write_text(path.read_text().split("\n\nCRITERIA['right']")[0])
    path.write_text(path.read_text() + SAYS.format(verdict))


def told(course: Course) -> dict[str, str]:
    """Return what each student has in grades.csv."""
    assert course.run("grades").returncode == 0
    rows = list(csv.DictReader((course.classroom / "grades.csv").open()))
    return {row["SIS Login ID"]: row["ring"] for row in rows[1:]}


@FULL
def test_a_mistake_of_ours_is_mended_for_everybody(tmp_path):
    course = Course(tmp_path)
    (course.classroom / "roster.csv").write_text("id\nanna\nbert\ncarl\n")
    decide(course, "fail('a mistake of ours')")
    for name, answer in (("anna", solution("ring")), ("bert", starter("ring"))):
        course.hand_in(name, nbformat.writes(as_notebook("ring", answer)))
    done = course.run("grade", "ring", "--unsafe")
    assert done.returncode == 0, done.stderr
    assert told(course) == {"anna": "1", "bert": "0", "carl": ""}
    book = f"sqlite:///{course.classroom / 'gradebook.db'}"
    with Gradebook(book, "ddp-lab") as gradebook:
        grade = gradebook.find_grade("any_length", "ring", "ring", "bert")
        grade.manual_score, grade.needs_manual_grade = 0.5, False
        comment = gradebook.find_comment("program", "ring", "ring", "bert")
        comment.manual_comment = "Half of it was there."
        gradebook.db.commit()

    decide(course, "Verdict('pass')\nCRITERIA['any_length'] = None  # not called")
    done = course.run("grade", "ring", "--unsafe", "--only", "right")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "anna: right FAIL → pass, 1 → 3 points",
        "bert: right FAIL → pass, 0 → 2 points",
    ]
    path = course.classroom / "reports" / "ring" / "bert.json"
    found = json.loads(path.read_text())["criteria"]
    assert [one["state"] for one in found.values()] == ["pass", "not yet"]
    assert told(course) == {"anna": "3", "bert": "2.5", "carl": ""}
    with Gradebook(book, "ddp-lab") as gradebook:
        grade = gradebook.find_grade("any_length", "ring", "ring", "bert")
        assert (grade.manual_score, grade.needs_manual_grade) == (0.5, False)
        comment = gradebook.find_comment("program", "ring", "ring", "bert")
        assert comment.comment == "Half of it was there."
    done = course.run("grade", "ring", "--unsafe", "--only", "wrong")
    assert done.returncode == 1
    assert done.stderr.strip() == "ring has no criterion wrong: right, any_length"

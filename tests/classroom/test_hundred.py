"""What a large course needs, through nbgrader: late days, regrading, the roster."""

import csv
import functools
import io
import json
import os
import sys

import nbformat
import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

import slurm_cluster  # noqa: E402
from conftest import FULL  # noqa: E402
from course import as_notebook, cells, solution, starter  # noqa: E402
from nbgrader.api import Gradebook  # noqa: E402
from test_course import Course  # noqa: E402

from classroom.engine import judge  # noqa: E402
from classroom.engine.__main__ import changes, judge_all  # noqa: E402
from classroom.extras import spread  # noqa: E402

pytestmark = pytest.mark.sandbox

POLICY = "c.LateDays.free_days = 1\nc.LateDays.percent_per_day = 50\n"
NO_SUM = "\n\nCRITERIA['right'] = lambda rig, **case: {}\n"


def submission(answer) -> str:
    return nbformat.writes(as_notebook("ring", answer))


def told(course: Course) -> dict[str, str]:
    """Return what each student has in grades.csv."""
    assert course.run("grades").returncode == 0
    rows = list(csv.DictReader((course.classroom / "grades.csv").open()))
    assert (rows[0]["Student"], rows[0]["ring"]) == ("    Points Possible", "3")
    return {row["SIS Login ID"]: row["ring"] for row in rows[1:]}


def decide(course: Course, verdict: str) -> None:
    """Let criterion `right` say the same of everybody."""
    path = course.classroom / "assignments" / "ring" / "criteria.py"
    path.write_text(path.read_text().split("\n\nCRITERIA['right']")[0])
    path.write_text(path.read_text() + NO_SUM.format(verdict))


def states(course: Course, student: str) -> list[str]:
    path = course.classroom / "reports" / "ring" / f"{student}.json"
    return [c["state"] for c in json.loads(path.read_text())["criteria"].values()]


# --- regrading, with a judge that takes no time ---


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return a function that judges anna's ring, and what it has tried."""
    monkeypatch.setattr(judge, "COURSE", tmp_path)
    tried: list[str] = []
    state = {"now": "fail"}

    def try_all(rig, cells, keep):
        tried[:] = [cell.name for cell in cells]
        known = {"state": state["now"], "lines": []}
        found = {cell.name: {"points": cell.points} | known for cell in cells}
        for name, one in found.items():
            keep(name, one)
        return found, True

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
    assert changes(before, now) == "bytes_sent FAIL → pass, 0 → 4 points"
    assert changes(now, judged("fail")) == "" and judged.tried == []  # it is on record


def test_what_was_blocked_is_judged_again(judged):
    judged("fail", only=["bytes_sent"])
    judged("blocked", only=["bytes_sent"])
    assert judged("pass").criteria["bytes_sent"]["state"] == "pass"
    assert judged.tried == ["bytes_sent"]


def test_who_hands_in_anew_is_judged_by_all_criteria(judged):
    judged("fail")
    judged.programs["ring.py"] = "x = 2"
    judged("pass", only=["bytes_sent"])
    assert judged.tried == [cell.name for cell in cells("ring")]


def test_who_was_never_judged_is_judged_by_all_criteria(judged):
    assert changes(None, judged("pass", only=["bytes_sent"])) == ""
    assert judged.tried == [cell.name for cell in cells("ring")]


# --- through nbgrader ---


@FULL
def test_a_course_with_late_days_a_roster_and_a_regrading(tmp_path):
    course = Course(tmp_path)
    config = course.classroom / "nbgrader_config.py"
    config.write_text(config.read_text() + POLICY)
    (course.classroom / "roster.csv").write_text(
        "id,last_name,first_name,section\n"
        "anna,Ahlgren,Anna,A\nbert,Bär,Bert,B\ncarl,Coe,Carl,A\n"
    )
    decide(course, "fail('a mistake of ours')")
    assert course.run("release", "ring").returncode == 0
    book = f"sqlite:///{course.classroom / 'gradebook.db'}"
    with Gradebook(book, "ddp-lab") as gradebook:
        gradebook.update_or_create_assignment("ring", duedate="2024-03-04 12:00 UTC")
    course.hand_in("anna", submission(solution("ring")))
    course.hand_in("bert", submission(starter("ring")))
    stamp = course.classroom / "submitted" / "anna" / "ring" / "timestamp.txt"
    stamp.write_text("2024-03-06 11:00:00 UTC")  # begun days: two, one of them free

    done = course.run("grade", "ring", "--unsafe")
    assert done.returncode == 0, done.stderr
    assert told(course) == {"anna": "0", "bert": "0", "carl": "0"}
    with Gradebook(book, "ddp-lab") as gradebook:
        grade = gradebook.find_grade("any_length", "ring", "ring", "bert")
        grade.manual_score, grade.needs_manual_grade = 0.5, False
        comment = gradebook.find_comment("program", "ring", "ring", "bert")
        comment.manual_comment = "Half of it was there."
        gradebook.db.commit()
        assert gradebook.find_student("carl").last_name == "Coe"

    decide(course, "Verdict('pass')")  # it is mended, and judged anew for all
    path = course.classroom / "assignments" / "ring" / "criteria.py"
    path.write_text(
        path.read_text() + "\nCRITERIA['any_length'] = None  # not called\n"
    )
    done = course.run("grade", "ring", "--unsafe", "--only", "right")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "anna: right FAIL → pass, 1 → 3 points",
        "bert: right FAIL → pass, 0 → 2 points",
        "nothing has come from carl",
    ]
    assert states(course, "anna") == ["pass", "pass"]
    assert states(course, "bert") == ["pass", "not yet"]
    # 3 points, less half of them; and 2 with what was given by hand.
    assert told(course) == {"anna": "1.5", "bert": "2.5", "carl": "0"}
    with Gradebook(book, "ddp-lab") as gradebook:
        grade = gradebook.find_grade("any_length", "ring", "ring", "bert")
        assert (grade.manual_score, grade.needs_manual_grade) == (0.5, False)
        comment = gradebook.find_comment("program", "ring", "ring", "bert")
        assert comment.comment == "Half of it was there."

    assert course.run("feedback", "ring").returncode == 0
    page = course.feedback("anna")
    assert "Handed in 2 days late, of which 1 free: −1.5 points." in page
    assert "(Score: 1.5 / 3.0)" in page
    assert "Handed in" not in course.feedback("bert")

    # Whoever hands in anew is judged by all criteria.
    stamp.with_name("ring.ipynb").write_text(submission(starter("ring")))
    done = course.run("grade", "ring", "--unsafe", "--only", "right")
    assert states(course, "anna")[1] == "fail"  # it was called, and is None
    assert states(course, "bert") == ["pass", "not yet"]
    done = course.run("grade", "ring", "--unsafe", "--only", "wrong")
    assert done.returncode == 1
    assert done.stderr.strip() == "ring has no criterion wrong: right, any_length"


# --- spread over a cluster ---


@FULL
@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing())
def test_grading_is_spread_over_the_machines_of_a_cluster(tmp_path):
    course = Course(tmp_path)
    decide(course, "Verdict('pass')")
    for name in ("anna", "bert", "carl"):
        course.hand_in(name, submission(solution("ring")))
    course.hand_in("dora", submission(starter("ring")))
    words = ["slurm", "--nodes=2 --ntasks=2 --time=10", "ring", "--unsafe"]
    with slurm_cluster.Cluster(shared=[tmp_path]) as cluster:
        done = course.run(*words, SLURM_CONF=str(cluster.conf))
        assert not cluster.jobs()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    where = {line.split()[1]: line.split()[-1] for line in lines if line[:1] == "["}
    # Every other one to a task, and a task to a node.
    assert where["anna:"] == where["carl:"] != where["bert:"] == where["dora:"]
    assert {*where.values()} == {"box1)", "box2)"}
    rows = [line.split() for line in lines[-4:]]
    assert [[row[0], *row[-2:]] for row in rows] == [
        ["anna", "3", "3"],
        ["bert", "3", "3"],
        ["carl", "3", "3"],
        ["dora", "2", "3"],
    ]
    found = sorted(p.name for p in (course.classroom / "reports").iterdir())
    assert found == ["ring"]  # and nothing of the way that they took
    assert course.run("grades").returncode == 0
    assert "dora" in (course.classroom / "grades.csv").read_text()


def srun(tmp_path, monkeypatch, text: str) -> None:
    """Put a program of this name where it is found first."""
    path = tmp_path / "bin" / "srun"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    monkeypatch.setattr(spread, "COURSE", tmp_path)


def asked_of_slurm() -> list:
    options = {"unsafe": True, "again": False, "only": []}
    return [*spread.reports("ring", ["anna"], slurm="--ntasks=2", **options)]


@pytest.mark.parametrize("asked", [{"again": True}, {"only": ["right"]}, {}])
def test_a_task_is_told_what_was_asked_for(asked, tmp_path, monkeypatch):
    srun(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/words; cat > {tmp_path}/asked')
    options = {"unsafe": False, "again": False, "only": []} | asked
    assert [*spread.reports("ring", ["anna"], slurm="--ntasks=2", **options)] == []
    told = json.loads((tmp_path / "asked").read_text())
    assert told["options"] == options and told["secret"] == judge.SECRET
    words = (tmp_path / "words").read_text().split()
    # A node that fails takes no other with it.
    assert {"--kill-on-bad-exit=0", "--ntasks=2"} <= {*words}


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Return a function: what task k of 3 judges, and by which options."""
    said: list[str] = []
    seen: dict = {}

    def judge_all(assignment, names, **options):
        seen.update(options, names=names, job=os.environ.get("SLURM_JOB_ID"))
        for name in names:
            yield judge.blocked(assignment, name, "told by a node")

    def told(*words, **options):
        assert (tmp_path / f"{words[2]}.json").exists()  # when it is said to be there
        said.append(" ".join(words))

    def run(number: int, names: str, **options) -> tuple[list[str], dict]:
        known = {"unsafe": True, "again": False, "only": []} | options
        asked = {"assignment": "ring", "names": [*names], "folder": str(tmp_path)}
        asked |= {"options": known, "secret": "3f9c"}
        variables = {"PROCID": number, "NTASKS": 3, "JOB_ID": 17}
        given = {f"SLURM_{name}": str(value) for name, value in variables.items()}
        monkeypatch.setattr(os, "environ", {"SLURMD_NODENAME": "box2"} | given)
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked) + "\n"))
        spread.main()
        return said, seen

    monkeypatch.setattr(judge, "judge_all", judge_all)
    monkeypatch.setattr(spread, "print", told, raising=False)
    return run


@pytest.mark.parametrize(("number", "mine"), [(0, "adg"), (1, "be"), (2, "cf")])
def test_a_task_judges_its_share_and_says_so(task, number, mine):
    said, seen = task(number, "abcdefg")
    assert said == [f"judged: box2 {name}" for name in mine]
    assert seen["names"] == [*mine] and seen["secret"] == "3f9c"
    assert seen["job"] is None  # the programs shall not take it for theirs


def test_a_node_without_a_sandbox_judges_nothing(task, monkeypatch):
    monkeypatch.setattr(spread.sandbox, "available", lambda: "no bubblewrap")
    with pytest.raises(SystemExit, match="box2: no bubblewrap"):
        task(0, "abc", unsafe=False)


def test_without_slurm_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(spread, "COURSE", tmp_path)
    with pytest.raises(SystemExit, match="needs srun, and there is none here"):
        asked_of_slurm()
    assert not (tmp_path / "reports").exists()


def test_what_does_not_come_back_is_blocked(tmp_path, monkeypatch, capsys):
    srun(tmp_path, monkeypatch, "cat > /dev/null; echo 'srun: no machines'; exit 1")
    (report,) = judge_all(
        "ring",
        ["anna"],
        {"unsafe": True, "again": False, "only": []},
        functools.partial(spread.reports, slurm="--ntasks=2"),
    )
    assert {found["state"] for found in report.criteria.values()} == {"blocked"}
    said = capsys.readouterr().out
    assert "srun: no machines" in said
    assert "anna: 0 of 0 points, it could not be judged: no report has come" in said


def test_a_report_comes_back_by_the_shared_folder(tmp_path, monkeypatch):
    report = judge.blocked("ring", "anna", "told by a node")
    judge.write(tmp_path / "there.json", report)
    srun(
        tmp_path,
        monkeypatch,
        'folder=$(sed \'s/.*"folder": "\\([^"]*\\)".*/\\1/\')\n'
        f"cp {tmp_path}/there.json $folder/anna.json\necho judged: box2 anna",
    )
    assert asked_of_slurm() == [(report, "box2")]
    assert [*(tmp_path / "reports").iterdir()] == []


def test_a_report_may_be_seen_later_or_never(tmp_path, monkeypatch):
    late, never = tmp_path / "late.json", tmp_path / "never.json"
    report = judge.blocked("ring", "anna", "told by a node")
    monkeypatch.setattr(spread.time, "sleep", lambda _: judge.write(late, report))
    assert spread._arrived(late) == report
    monkeypatch.setattr(spread, "SEEN_WITHIN", 0.01)
    assert spread._arrived(never) is None
    srun(tmp_path, monkeypatch, "cat > /dev/null; echo judged: box2 anna")
    assert asked_of_slurm() == []

"""Run the course: what `make release`, `handout`, `grade`, `feedback`, `grades` do.

python -m classroom.engine release ASSIGNMENT
python -m classroom.engine handout [ASSIGNMENT]
python -m classroom.engine grade ASSIGNMENT [--unsafe] [--again] [STUDENT ...]
python -m classroom.engine feedback ASSIGNMENT
python -m classroom.engine grades
"""

import argparse
import csv
import logging
import os
import sys
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from nbgrader.api import Grade, Gradebook, Student, SubmittedAssignment
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from classroom.engine import assignment as assignments
from classroom.engine import handout, judge, preprocessors, sandbox
from classroom.engine.assignment import COURSE, LAB, criteria, home, notebook
from ddp_lab import from_here
from ddp_lab.kit.cell.display import table

LABELS = {"pass": "pass", "fail": "FAIL", "blocked": "blocked", "not yet": "not yet"}
# Canvas wants the first five; Moodle maps "SIS User ID" to its ID number.
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]


def api(**directories: str) -> NbGraderAPI:
    """Return nbgrader's own interface to this course."""
    # nbgrader starts alembic by its name, to make the gradebook.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    config = Config()
    for place in dict.fromkeys((LAB, COURSE)):
        if (place / "nbgrader_config.py").exists():
            loader = PyFileConfigLoader("nbgrader_config.py", path=str(place))
            config.merge(loader.load_config())
    config.CourseDirectory.update(directories)
    quiet = logging.getLogger("classroom")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    course = CourseDirectory(config=config)
    return NbGraderAPI(course, config=config, log=quiet)


def told(what: str, result: dict) -> None:
    """Stop with nbgrader's own words if it did not succeed."""
    if not result["success"]:
        log = result.get("log", "").strip().splitlines()[-8:]
        sys.exit("\n".join([f"nbgrader could not {what}:", *log, result["error"]]))


def students(assignment: str) -> list[str]:
    """Return who has handed in an assignment."""
    found = (COURSE / "submitted").glob("*/")
    # Whatever it is: what is no folder has its sentence in the report.
    return sorted(path.name for path in found if os.path.lexists(path / assignment))


def release(assignment: str) -> None:
    """Write the students' version to release/."""
    course = api(source_directory=str(home(assignment) / "source"))
    told("release it", course.generate_assignment(assignment))
    path = notebook("release", assignment).parent
    print(f"for the students: {from_here(path)}")


def hand_out(assignment: str | None) -> None:
    """Write what students get: with one assignment, or with all that are released."""
    if assignment and not notebook("release", assignment).exists():
        release(assignment)
    known = [assignment] if assignment else assignments.names()
    released = [name for name in known if notebook("release", name).exists()]
    path = handout.hand_out(released)
    print(f"for the students, with {', '.join(released) or 'no assignment yet'}:")
    print(from_here(path))


def grade(assignment: str, names: list[str], unsafe: bool, again: bool) -> None:
    """Judge what was handed in, several at once; write it to the gradebook."""
    if not unsafe and (trouble := sandbox.available()):
        sys.exit(trouble)
    if not unsafe and (warning := sandbox.weak()):
        print(warning, flush=True)
    if not notebook("release", assignment).exists():
        release(assignment)
    names = names or students(assignment)
    if not names:
        where = from_here(COURSE / "submitted" / "STUDENT" / assignment)
        sys.exit(f"nobody has handed in {where}/")
    reports = judge_all(assignment, names, unsafe, again)
    course = api(submitted_directory=str(preprocessors.STAGED))
    for name in names:
        preprocessors.stage(assignment, name)
        result = course.autograde(assignment, name)
        if not result["success"]:  # the others go on
            last = result["error"].strip().splitlines()[-1]
            print(f"{name}: nbgrader could not save the grades: {last}", flush=True)
    print(f"\n{overview(reports)}")


def judge_all(
    assignment: str, names: list[str], unsafe: bool, again: bool
) -> list[judge.Report]:
    """Judge as many submissions at once as there are cores and GPUs for."""
    jobs = max(1, (os.cpu_count() or 2) // 2)
    if gpus := sandbox.gpus():
        jobs = min(jobs, gpus)
    reports: dict[str, judge.Report] = {}
    start = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {
            pool.submit(judge.judge, assignment, name, unsafe=unsafe, again=again): name
            for name in names
        }
        try:
            for done in as_completed(waiting):
                name = waiting[done]
                reports[name] = report = _result(done, assignment, name)
                head = f"[{len(reports)}/{len(names)}] {name}"
                score = f"{report.score:g} of {report.maximum:g} points"
                note = f", {report.note}" if report.note else ""
                past = f"{time.monotonic() - start:.0f} s"
                print(f"{head}: {score}{note} ({past})", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [reports[name] for name in names]


def _result(done: Future[judge.Report], assignment: str, name: str) -> judge.Report:
    """Return a submission's report; trouble of the judge's own blocks all of it."""
    try:
        return done.result()
    except Exception as error:
        note = f"it could not be judged: {type(error).__name__}: {error}"
        states: dict[str, judge.Judged] = {
            cell.name: {"points": cell.points, "state": "blocked", "lines": [note]}
            for cell in criteria(assignment)
        }
        return judge.Report(assignment, name, "", note, states)


def overview(reports: list[judge.Report]) -> str:
    """Return a table: a row for each student, a column for each criterion."""
    head = ["student", *reports[0].criteria, "points", "of"]
    rows = [
        [
            report.student,
            *(LABELS[found["state"]] for found in report.criteria.values()),
            f"{report.score:g}",
            f"{report.maximum:g}",
        ]
        for report in reports
    ]
    return table([head, *rows])


def feedback(assignment: str) -> None:
    """Write an HTML page for each student who was graded."""
    told("write the feedback", api().generate_feedback(assignment))
    for name in students(assignment):
        path = COURSE / "feedback" / name / assignment / f"{assignment}.html"
        if path.exists():
            print(from_here(path))


def grades() -> None:
    """Write grades.csv for Canvas and Moodle, and grades-details.csv for a person.

    Where a criterion was blocked and nobody has graded it by hand, the student's cell
    in grades.csv is empty, which both leave as it is; the details say what is missing.
    """
    rows: dict[str, dict[str, str]] = {}
    details, names = [], []
    with Gradebook(f"sqlite:///{COURSE / 'gradebook.db'}", "ddp-lab") as gradebook:
        for assignment in gradebook.assignments:
            names.append(assignment.name)
            for done in gradebook.assignment_submissions(assignment.name):
                blocked = [g for g in _all_grades(done) if g.needs_manual_grade]
                score = round(done.score - done.late_submission_penalty, 3)
                maximum = done.max_score - sum(g.max_score for g in blocked)
                person = done.student
                row = rows.setdefault(person.id, _row(person))
                row[assignment.name] = "" if blocked else f"{score:g}"
                held = " ".join(grade.name for grade in blocked)
                known = [person.id, assignment.name, f"{score:g}", f"{maximum:g}", held]
                details.append(known)
    _write("grades.csv", CANVAS + names, [rows[key] for key in sorted(rows)])
    head = ["student", "assignment", "score", "max", "blocked"]
    lines = [dict(zip(head, line, strict=True)) for line in sorted(details)]
    _write("grades-details.csv", head, lines)


def _all_grades(submission: SubmittedAssignment) -> list[Grade]:
    return [grade for notebook in submission.notebooks for grade in notebook.grades]


def _row(person: Student) -> dict[str, str]:
    name = ", ".join(part for part in (person.last_name, person.first_name) if part)
    row = dict.fromkeys(CANVAS, "")
    return row | {
        "Student": name or person.id,
        "SIS User ID": person.id,
        "SIS Login ID": person.id,
    }


def _write(name: str, head: list[str], rows: list[dict]) -> None:
    path = COURSE / name
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, head, restval="")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{from_here(path)}: {len(rows)} rows")


def main() -> None:
    """Run the command that the docstring of this module describes."""
    warnings.filterwarnings("ignore", module="nbgrader")  # SQLAlchemy's, about it
    parser = argparse.ArgumentParser(description=__doc__)
    commands = ["release", "handout", "grade", "feedback", "grades"]
    parser.add_argument("command", choices=commands)
    parser.add_argument("assignment", nargs="?")
    parser.add_argument("students", nargs="*")
    parser.add_argument("--unsafe", action="store_true")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    known = assignments.names()
    optional = args.command == "handout" and not args.assignment
    if args.command != "grades" and not optional and args.assignment not in known:
        sys.exit(f"say which assignment: A={' or A='.join(known)}")
    if args.command == "grade":
        grade(args.assignment, args.students, args.unsafe, args.again)
    elif args.command == "grades":
        grades()
    elif args.command == "handout":
        hand_out(args.assignment)
    else:
        {"release": release, "feedback": feedback}[args.command](args.assignment)


if __name__ == "__main__":
    main()

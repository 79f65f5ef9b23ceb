"""Run the course: what `make release`, `grade` and their kin do.

python -m classroom.engine release ASSIGNMENT
python -m classroom.engine handout [ASSIGNMENT] [--answers]
python -m classroom.engine grade ASSIGNMENT [OPTION ...] [STUDENT ...]
python -m classroom.engine feedback ASSIGNMENT
"""

import argparse
import logging
import os
import sqlite3
import sys
import time
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import nbgrader
from alembic.script import ScriptDirectory
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from classroom.engine import assignment as assignments
from classroom.engine import judge, preprocessors, sandbox
from classroom.engine.assignment import COURSE, LAB, criteria, home, notebook
from ddp_lab import from_here
from ddp_lab.kit.cell.display import table


def api(**directories: str) -> NbGraderAPI:
    """Return nbgrader's own interface to this course."""
    begin_gradebook()
    settings = config()
    settings.CourseDirectory.update(directories)
    quiet = logging.getLogger("classroom")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    course = CourseDirectory(config=settings)
    return NbGraderAPI(course, config=settings, log=quiet)


def begin_gradebook(path: Path = COURSE / "gradebook.db") -> None:
    """Begin the gradebook, if there is none, as nbgrader would: it is empty, and of
    today's form. For that one word nbgrader starts alembic, which takes seconds.
    """
    if path.exists():
        return
    head = ScriptDirectory(str(Path(nbgrader.__file__).parent / "alembic"))
    with closing(sqlite3.connect(path)) as book, book:
        book.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        words = "INSERT INTO alembic_version VALUES (?)"
        book.execute(words, [head.get_current_head()])


def config() -> Config:
    """Return what nbgrader_config.py says."""
    found = Config()
    for place in dict.fromkeys((LAB, COURSE)):
        if (place / "nbgrader_config.py").exists():
            loader = PyFileConfigLoader("nbgrader_config.py", path=str(place))
            found.merge(loader.load_config())
    return found


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


def must_be_released(assignment: str) -> None:
    """Release it, unless that is done: only then nbgrader knows it."""
    if not notebook("release", assignment).exists():
        release(assignment)


def hand_out(assignment: str | None, answers: bool = False) -> None:
    """Write what students get: with one assignment, or with all that are released."""
    from classroom.engine.handout import hand_out as write_handout  # needs the lessons

    if assignment:
        must_be_released(assignment)
    known = [assignment] if assignment else assignments.names()
    released = [name for name in known if notebook("release", name).exists()]
    path = write_handout(released, answers)
    print(f"for the students, with {', '.join(released) or 'no assignment yet'}:")
    print(from_here(path))


def grade(assignment: str, names: list[str], options: dict[str, Any]) -> None:
    """Judge what was handed in, several at once; write it to the gradebook.

    Args:
        assignment: what was handed in.
        names: of students; none for all.
        options: of `judge.judge`.
    """
    known = [cell.name for cell in criteria(assignment)]
    if unknown := [name for name in options["only"] if name not in known]:
        sys.exit(f"{assignment} has no criterion {unknown[0]}: {', '.join(known)}")
    if not options["unsafe"] and (trouble := sandbox.available()):
        sys.exit(trouble)
    names = names or students(assignment)
    if not names:
        where = from_here(COURSE / "submitted" / "STUDENT" / assignment)
        sys.exit(f"nobody has handed in {where}/")
    must_be_released(assignment)
    before = {name: judge.read(judge.path_of(assignment, name)) for name in names}
    reports = judge_all(assignment, names, options)
    course = api(submitted_directory=str(preprocessors.STAGED))
    for name in names:
        preprocessors.stage(assignment, name)
        result = course.autograde(assignment, name)
        if not result["success"]:  # the others go on
            last = result["error"].strip().splitlines()[-1]
            print(f"{name}: nbgrader could not save the grades: {last}", flush=True)
    print(f"\n{overview(reports)}")
    for report in reports:
        if told := changes(before[report.student], report):
            print(f"{report.student}: {told}")


def judge_all(
    assignment: str, names: list[str], options: dict[str, Any]
) -> list[judge.Report]:
    """Judge submissions; tell of each as it is done."""
    found: dict[str, judge.Report] = {}
    start = time.monotonic()
    for report in judge.judge_all(assignment, names, **options):
        found[report.student] = report
        head = f"[{len(found)}/{len(names)}] {report.student}"
        score = f"{report.score:g} of {report.maximum:g} points"
        note = f", {report.note}" if report.note else ""
        past = f"{time.monotonic() - start:.0f} s"
        print(f"{head}: {score}{note} ({past})", flush=True)
    return [found[name] for name in names]


def overview(reports: list[judge.Report]) -> str:
    """Return a table: a row for each student, a column for each criterion; and below it
    why something is blocked.
    """
    rows, reasons = [["student", *reports[0].criteria, "points", "of"]], Counter[str]()
    for report in reports:
        states = [label(found) for found in report.criteria.values()]
        points = f"{report.score:g}", f"{report.maximum:g}"
        rows.append([report.student, *states, *points])
        stuck = [c for c in report.criteria.values() if c["state"] == "blocked"]
        reasons.update(judge.why(found) for found in stuck)
    told = [f"blocked ({many}): {why}" for why, many in reasons.items()]
    return "\n".join([table(rows), *told])


def label(found: judge.Judged) -> str:
    """Return a state as it is printed."""
    return found["state"].replace("fail", "FAIL")


def changes(before: judge.Report | None, now: judge.Report) -> str:
    """Return what has changed since the last grading; "" if nothing has."""
    if before is None:
        return ""
    told = [
        f"{name} {label(old)} → {label(found)}"
        for name, found in now.criteria.items()
        if (old := before.criteria.get(name, found))["state"] != found["state"]
    ]
    points = f"{before.score:g} → {now.score:g} points"
    return ", ".join([*told, points]) if told or before.score != now.score else ""


def feedback(assignment: str) -> None:
    """Write an HTML page for each student who was graded."""
    told("write the feedback", api().generate_feedback(assignment))
    for name in students(assignment):
        path = COURSE / "feedback" / name / assignment / f"{assignment}.html"
        if path.exists():
            print(from_here(path))


def main() -> None:
    """Run the command that the docstring of this module describes."""
    warnings.filterwarnings("ignore", module="nbgrader")  # SQLAlchemy's, about it
    parser = argparse.ArgumentParser(description=__doc__)
    simple = {"release": release, "feedback": feedback}
    parser.add_argument("command", choices=[*simple, "handout", "grade"])
    parser.add_argument("assignment", nargs="?")
    parser.add_argument("students", nargs="*")
    parser.add_argument("--unsafe", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="CRITERION")
    parser.add_argument("--answers", action="store_true")
    args = parser.parse_args()
    known = assignments.names()
    optional = args.command == "handout" and not args.assignment
    if not optional and args.assignment not in known:
        sys.exit(f"say which assignment: A={' or A='.join(known)}")
    if args.command == "grade":
        options = {"unsafe": args.unsafe, "again": args.again, "only": args.only}
        grade(args.assignment, args.students, options)
    elif args.command == "handout":
        hand_out(args.assignment, args.answers)
    else:
        simple[args.command](args.assignment)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        words = "broken off; what has been judged is saved, and the rest comes next"
        print(words, file=sys.stderr, flush=True)
        os._exit(1)  # with all sandboxes, and nothing is judged by that

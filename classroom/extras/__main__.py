"""Run what not every course needs.

python -m classroom.extras similar ASSIGNMENT
python -m classroom.extras gradescope ASSIGNMENT
python -m classroom.extras grades
python -m classroom.extras grade ASSIGNMENT [OPTION ...] [STUDENT ...]
python -m classroom.extras slurm OPTIONS ASSIGNMENT [OPTION ...] [STUDENT ...]

The last two are `grade` of classroom.engine with the roster and the due dates, here or
on the machines of a cluster.
"""

import argparse
import functools
import sys
import warnings
from typing import Any

from nbgrader.api import Gradebook

from classroom.engine import __main__ as engine
from classroom.engine import assignment
from classroom.engine.assignment import COURSE
from classroom.extras import grades as export
from classroom.extras import gradescope as autograder
from classroom.extras import late, roster, similar, spread
from ddp_lab import ROOT, from_here


def opened(everybody: roster.Roster) -> Gradebook:
    """Return the gradebook, which knows the roster and the due dates of now."""
    engine.begin_gradebook()
    gradebook = Gradebook(f"sqlite:///{COURSE / 'gradebook.db'}", "ddp-lab")
    roster.enter_due(gradebook)
    roster.enter(everybody, gradebook)
    return gradebook


def grade(name: str, students: list[str], **options: Any) -> None:
    """Grade, and tell who is not on the roster and who has handed in nothing."""
    everybody = roster.read()  # now, because it may be no roster
    engine.grade(name, students, enter=lambda: opened(everybody).close(), **options)
    came = {student: everybody.find(student) for student in engine.students(name)}
    strange = [student for student, person in came.items() if person is None]
    if everybody.people and strange:
        print(f"not on the roster: {', '.join(strange)}")
    absent = [p.id for p in everybody.people if p not in came.values()]
    if absent:
        print(f"nothing has come from {', '.join(absent)}")


def grades() -> None:
    """Write the grades for Canvas, for Moodle, and for a person: see grades.py."""
    everybody = roster.read()
    with opened(everybody) as gradebook:
        policy = late.LateDays(config=engine.config())
        print(*export.write(gradebook, everybody, policy), sep="\n")


def alike(name: str) -> None:
    """Write a page of the submissions that look alike, and print a table of them."""
    engine.must_be_released(name)
    print(similar.report(name, engine.students(name)))


def gradescope(name: str) -> None:
    """Write the zip that Gradescope takes as an autograder."""
    path = ROOT / "build" / "gradescope" / name / "autograder.zip"
    autograder.build(name, path)
    print(f"upload as an autograder: {from_here(path)}")


def main() -> None:
    """Run the command that the docstring of this module describes."""
    warnings.filterwarnings("ignore", module="nbgrader")  # SQLAlchemy's, about it
    if sys.argv[1:2] == ["slurm"]:
        options = sys.argv[2]
        sys.argv[1:3] = ["grade"]
        elsewhere = functools.partial(spread.reports, slurm=options)
        return engine.main(functools.partial(grade, elsewhere=elsewhere))
    if sys.argv[1:2] == ["grade"]:
        return engine.main(grade)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["similar", "gradescope", "grades"])
    parser.add_argument("assignment", nargs="?")
    args = parser.parse_args()
    known = assignment.names()
    if args.command == "grades":
        return grades()
    if args.assignment not in known:
        sys.exit(f"say which assignment: A={' or A='.join(known)}")
    {"similar": alike, "gradescope": gradescope}[args.command](args.assignment)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("broken off; what has been judged is saved, and the rest comes next")

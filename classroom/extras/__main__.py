"""Run what not every course needs.

python -m classroom.extras similar ASSIGNMENT
python -m classroom.extras gradescope ASSIGNMENT
python -m classroom.extras grades
python -m classroom.extras slurm OPTIONS ASSIGNMENT [OPTION ...] [STUDENT ...]

The last one is `grade` of classroom.engine, on the machines of a cluster.
"""

import argparse
import functools
import sys
import warnings

from classroom.engine import __main__ as engine
from classroom.engine import assignment, roster
from classroom.engine.assignment import notebook
from classroom.extras import grades as export
from classroom.extras import gradescope as autograder
from classroom.extras import late, similar, spread
from ddp_lab import ROOT, from_here


def grades() -> None:
    """Write the grades for Canvas, for Moodle, and for a person: see grades.py."""
    with engine.gradebook() as gradebook:
        everybody = roster.read()
        roster.enter(everybody, gradebook)
        policy = late.LateDays(config=engine.config())
        print(*export.write(gradebook, everybody, policy), sep="\n")


def alike(name: str) -> None:
    """Write a page of the submissions that look alike, and print a table of them."""
    if not notebook("release", name).exists():
        engine.release(name)
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
        engine.grade = functools.partial(engine.grade, elsewhere=elsewhere)
        return engine.main()
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

"""What an assignment is: a folder in assignments/ and a notebook in source/.

    assignments/NAME/criteria.py   what is asked: see `Assignment`
    assignments/NAME/harness.py    runs beside the student's program, in every rank
    assignments/NAME/mistakes.diff what students get wrong: see `mistakes`
    source/NAME/NAME.ipynb         prose, the programs with their solutions, the cases

The engine names no assignment. They lie in classroom/, and in the folder of a course
that DDP_LAB_COURSE names: what is there goes before what has the same name here.
"""

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol, cast

import nbformat

from classroom.engine.verdict import Verdict
from ddp_lab import ROOT

LAB = ROOT / "classroom"
"""The lab's own course."""


def _course() -> Path:
    path = Path(os.environ.get("DDP_LAB_COURSE") or LAB).expanduser().resolve()
    if not path.is_dir():
        raise SystemExit(f"there is no folder {path} for a course")
    return path


COURSE = _course()
"""Where submissions and grades are kept, and assignments of a course's own."""

Criteria = Mapping[str, Callable[..., Verdict]]


class Assignment(Protocol):
    """What the module criteria.py of an assignment provides.

    It may also have NEEDS: by criterion, the files of the programs that it looks at, if
    not at all of them. The others need not have been written yet. And HELD_BACK: the
    criteria whose right answer could be found by trying, if each try were answered.
    """

    __name__: str

    @property
    def PROGRAMS(self) -> Mapping[str, str]:
        """The file of each program, by the `grade_id` of the cell that writes it."""

    @property
    def CRITERIA(self) -> Criteria:
        """By the `grade_id` of the cell that grades: called with a `Rig` and a case."""

    @property
    def WORDS(self) -> Mapping[str, str]:
        """How a parameter of a case is worded, such as "{} numbers"; "" hides it."""


@dataclass(frozen=True)
class Criterion:
    """One cell of the source notebook that grades."""

    name: str
    points: float
    cases: list[dict]


@dataclass(frozen=True)
class Mistake:
    """Changes to the solution, and the criterion that they violate."""

    name: str
    criterion: str
    changes: list[tuple[str, str]]
    """Each a text that occurs in the solution once, and what replaces it."""
    says: str = "fail: "
    """How the feedback begins."""
    also: tuple[str, ...] = ()
    """Other criteria that they violate, where a mistake misses the whole idea."""


def named(*criteria: Callable[..., Verdict]) -> Criteria:
    """Return criteria, each by the name of its function."""
    return {criterion.__name__: criterion for criterion in criteria}


def mistakes(assignment: str) -> list[Mistake]:
    """Read its mistakes, each a difference to the solution under a line that names it:

        @@ CRITERION, OTHER, ...: NAME
        > how the feedback begins, if not with "fail: "
         a line that stays, to say where
        -a line of the solution
        +what stands there instead

    A blank line separates two places. Lines that begin with a space or - must occur in
    the solution once, together.
    """
    found = []
    place = home(assignment) / "assignments" / assignment
    text = (place / "mistakes.diff").read_text()
    for part in re.split(r"^@@ ", text, flags=re.M)[1:]:
        head, *lines = part.splitlines()
        criteria, _, name = head.partition(": ")
        criterion, *also = criteria.split(", ")
        said = [line[2:] for line in lines if line[:1] == ">"]
        places = [[*group] for any_, group in groupby(lines, bool) if any_]
        changes = [(_side(place, " -"), _side(place, " +")) for place in places]
        says = said[0] if said else Mistake.says
        found.append(Mistake(name, criterion, changes, says, tuple(also)))
    return found


def _side(lines: list[str], marks: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[0] in marks)


def names() -> list[str]:
    """Return the names of all assignments, the course's own and the lab's."""
    found = (path for home in (COURSE, LAB) for path in home.glob("source/*/*.ipynb"))
    return sorted({path.parent.name for path in found})


def home(name: str) -> Path:
    """Return the folder of the course that an assignment belongs to."""
    return COURSE if (COURSE / "source" / name).is_dir() else LAB


def load(name: str) -> Assignment:
    """Return the module with an assignment's criteria."""
    module = importlib.import_module(f"classroom.assignments.{name}.criteria")
    return cast(Assignment, module)


def folder(assignment: Assignment) -> Path:
    """Return the folder in which an assignment's modules lie."""
    name = assignment.__name__.split(".")[-2]
    return home(name) / "assignments" / name


def notebook(step: str, name: str, student: str = ".") -> Path:
    """Return where nbgrader keeps an assignment's notebook: source, release, ..."""
    course = home(name) if step == "source" else COURSE
    return course / step / student / name / f"{name}.ipynb"


def criteria(name: str) -> list[Criterion]:
    """Return the criteria of an assignment with all their cases, hidden ones too."""
    found = []
    for cell in nbformat.read(notebook("source", name), as_version=4).cells:
        known = cell.metadata.get("nbgrader", {})
        if known.get("grade"):
            cases: list[dict] = []

            def check(name: str, *given: dict, cases: list[dict] = cases) -> None:
                cases += given

            exec(cell.source, {"check": check})
            found.append(Criterion(known.grade_id, float(known.points), cases))
    return found


def needed(assignment: Assignment, criterion: str) -> Sequence[str]:
    """Return the files of the programs that a criterion looks at."""
    files = getattr(assignment, "NEEDS", {}).get(criterion)
    return files or list(assignment.PROGRAMS.values())


def worded(assignment: Assignment, case: dict) -> str:
    """Return a case as text: `3 ranks, 10 numbers`. A seed tells the reader nothing."""
    formats = {"ranks": "{} ranks", "seed": "", **assignment.WORDS}
    parts = []
    for name, value in case.items():
        text = f"{value:,}" if isinstance(value, int) else str(value)
        parts.append(formats.get(name, name.replace("_", " ") + " {}").format(text))
        if (name, value) == ("ranks", 1):
            parts[-1] = parts[-1].replace("ranks", "rank")
    return ", ".join(part for part in parts if part)

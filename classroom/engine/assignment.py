"""What an assignment is: a folder in assignments/ and a notebook in source/.

    assignments/NAME/__init__.py   `check`, which the notebook imports
    assignments/NAME/criteria.py   what is asked: see `Assignment`
    assignments/NAME/harness.py    runs beside the student's program, in every rank
    assignments/NAME/mistakes.py   MISTAKES, each a `Mistake`
    source/NAME/NAME.ipynb         prose, the programs with their solutions, the cases

The engine names no assignment.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import nbformat

from classroom.engine.verdict import Verdict
from ddp_lab import ROOT

COURSE = ROOT / "classroom"


Criteria = Mapping[str, Callable[..., Verdict]]


class Assignment(Protocol):
    """What the module criteria.py of an assignment provides."""

    __name__: str

    @property
    def PROGRAMS(self) -> Mapping[str, str]:
        """The file of each program, by the `grade_id` of the cell that writes it."""

    @property
    def CRITERIA(self) -> Criteria:
        """By the `grade_id` of the cell that grades: called with a `Rig` and a case."""

    @property
    def NEEDS(self) -> Mapping[str, Sequence[str]]:
        """The files that a criterion looks at, where it does not look at all of them.

        The other programs need not have been written yet.
        """

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
    """Changes to the solution, and the one criterion that they violate."""

    name: str
    criterion: str
    changes: list[tuple[str, str]]
    """Each a text that occurs in the solution once, and what replaces it."""
    says: str = "fail: "
    """How the feedback begins."""


def names() -> list[str]:
    """Return the names of the course's assignments."""
    return sorted(path.parent.name for path in COURSE.glob("source/*/*.ipynb"))


def load(name: str) -> Assignment:
    """Return the module with an assignment's criteria."""
    module = importlib.import_module(f"classroom.assignments.{name}.criteria")
    return cast(Assignment, module)


def folder(assignment: Assignment) -> Path:
    """Return the folder in which an assignment's modules lie."""
    return COURSE / "assignments" / assignment.__name__.split(".")[-2]


def notebook(step: str, name: str, student: str = ".") -> Path:
    """Return where nbgrader keeps an assignment's notebook: source, release, ..."""
    return COURSE / step / student / name / f"{name}.ipynb"


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
    return assignment.NEEDS.get(criterion) or list(assignment.PROGRAMS.values())


def worded(assignment: Assignment, case: dict) -> str:
    """Return a case as text: `3 ranks, 10 numbers`. A seed tells the reader nothing."""
    formats = {"ranks": "{} ranks", "seed": "", **assignment.WORDS}
    parts = []
    for name, value in case.items():
        text = f"{value:,}" if isinstance(value, int) else str(value)
        parts.append(formats.get(name, name.replace("_", " ") + " {}").format(text))
    return ", ".join(part for part in parts if part)

"""Judge a submission, which in this course takes the place of executing the notebook.

The student's notebook is never executed. Its programs are taken out of it as text, run
in a sandbox for every case of every criterion, and the report is written to
reports/ASSIGNMENT/STUDENT.json. Criteria and cases come from the source notebook.
"""

import hashlib
import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from classroom.engine import sandbox
from classroom.engine.assignment import (
    COURSE,
    LAB,
    Criterion,
    criteria,
    folder,
    load,
    notebook,
)
from classroom.engine.check import line, try_case
from classroom.engine.rig import Rig, SandboxError
from classroom.engine.submission import answers
from classroom.engine.verdict import Verdict, total


class Judged(TypedDict):
    """What became of a criterion, as the report's JSON has it."""

    points: float
    state: str
    """As of a `Verdict`."""
    lines: list[str]
    """One for each case that was tried."""


@dataclass
class Report:
    """What became of a submission."""

    assignment: str
    student: str
    key: str
    """Of all that the grades depend on; the same key means the same grades."""
    note: str = ""
    """What is wrong with the file itself."""
    answer: str = ""
    """A hash of the programs alone."""
    criteria: dict[str, Judged] = field(default_factory=dict)
    """By name."""
    seconds: float = 0.0

    @property
    def score(self) -> float:
        return sum(c["points"] for c in self._in("pass"))

    @property
    def maximum(self) -> float:
        """The points of all criteria that could be judged."""
        return sum(c["points"] for c in self._in("pass", "fail", "not yet"))

    def _in(self, *states: str) -> list[Judged]:
        return [c for c in self.criteria.values() if c["state"] in states]


def judge(
    assignment: str,
    student: str,
    *,
    unsafe: bool = False,
    again: bool = False,
    only: Collection[str] = (),
) -> Report:
    """Return the report of a submission; an old one if nothing has changed since.

    Args:
        assignment: what was handed in.
        student: by whom.
        unsafe: run the programs without a sandbox.
        again: judge it even if nothing has changed.
        only: judge these criteria anew, and keep what the old report says of the rest,
            unless the programs have changed since.

    Raises:
        SystemExit: if there can be no sandbox here and `unsafe` is not given.
    """
    source = load(assignment)
    programs, note = answers(
        notebook("submitted", assignment, student), source.PROGRAMS
    )
    cells = criteria(assignment)
    report = Report(assignment, student, _key(assignment, programs, note, cells), note)
    report.answer = hashlib.sha256(json.dumps([programs, note]).encode()).hexdigest()
    path = _path(assignment, student)
    old = _read(path)
    if old and old.key == report.key and not (again or only):
        return old
    kept: dict[str, Judged] = {}
    if only and old and old.answer == report.answer:
        kept = {name: c for name, c in old.criteria.items() if name not in only}
    if not unsafe and (trouble := sandbox.available()):
        raise SystemExit(trouble)
    start = time.monotonic()
    rig = Rig(source, programs) if unsafe else sandbox.Sandbox(source, programs)
    try:
        found, works = try_all(rig, [cell for cell in cells if cell.name not in kept])
    finally:
        rig.close()
    report.criteria = {cell.name: (kept | found)[cell.name] for cell in cells}
    report.seconds = round(time.monotonic() - start, 1)
    if works:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(report), indent=1))
        part.replace(path)
    return report


def last(assignment: str, student: str) -> Report | None:
    """Return the report of the last grading; None if there is none."""
    return _read(_path(assignment, student))


def try_all(rig: Rig, cells: list[Criterion]) -> tuple[dict[str, Judged], bool]:
    """Try the programs of `rig` by the criteria `cells`.

    Returns:
        By name, what became of each criterion; and whether the sandbox worked, without
        which the criteria are blocked.
    """
    works = True
    found: dict[str, Judged] = {}
    for cell in cells:
        try:
            state, lines = _try(rig, cell)
        except SandboxError as error:
            works, state, lines = False, "blocked", [f"{cell.name}: {error}"]
        found[cell.name] = {"points": cell.points, "state": state, "lines": lines}
    return found, works


def _try(rig: Rig, cell: Criterion) -> tuple[str, list[str]]:
    """Try the cases of a criterion until one fails; return its state and its lines."""
    verdicts: list[Verdict] = []
    lines = []
    for case in cell.cases:
        verdicts.append(try_case(rig, cell.name, case))
        lines.append(line(rig.assignment, cell.name, case, verdicts[-1]))
        if verdicts[-1].state in ("fail", "not yet"):
            break  # one is enough, and each may take its time to fail
    return total(verdicts), lines


def _key(assignment: str, programs: dict, note: str, cells: list[Criterion]) -> str:
    """Return a hash of all that a report depends on."""
    parts = [json.dumps([assignment, programs, note, [asdict(c) for c in cells]])]
    parts += [version("torch"), str(sandbox.gpus())]
    for place in (LAB / "engine", folder(load(assignment))):
        files = sorted({*place.glob("*.py")} - {place / "mistakes.py"})
        parts += [path.read_text() for path in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _path(assignment: str, student: str) -> Path:
    return COURSE / "reports" / assignment / f"{student}.json"


def _read(path: Path) -> Report | None:
    try:
        return Report(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None

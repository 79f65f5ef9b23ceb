"""Judge a submission, which in this course takes the place of executing the notebook.

The student's notebook is never executed. Its programs are taken out of it as text, run
in a sandbox for every case of every criterion, and the report is written to
reports/ASSIGNMENT/STUDENT.json. Criteria and cases come from the source notebook.
"""

import functools
import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from classroom.engine import sandbox
from classroom.engine.assignment import COURSE, Criterion, criteria, load, notebook
from classroom.engine.check import line, try_case
from classroom.engine.modules import modules
from classroom.engine.rig import TURN, Rig, SandboxError, beside
from classroom.engine.submission import answers

SECRET = secrets.token_hex(8)
"""From which all cases of this grading run are drawn: see `Rig.draw`."""


class Judged(TypedDict):
    """What became of a criterion, as the report's JSON has it."""

    points: float
    state: str
    """As of a `Verdict`."""
    lines: list[str]
    """One for each case that was tried."""


def why(found: Judged) -> str:
    """Return why it became of a criterion what did; "" if it was passed."""
    return "".join(found["lines"][-1:]).partition(f": {found['state']}: ")[2]


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
    secret: str = ""
    """With which its cases were drawn."""
    criteria: dict[str, Judged] = field(default_factory=dict)
    """By name."""

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
    """
    source = load(assignment)
    programs, note = answers(
        notebook("submitted", assignment, student), source.PROGRAMS
    )
    cells = criteria(assignment)
    report = Report(assignment, student, _key(assignment, programs, note, cells), note)
    report.answer = hashlib.sha256(json.dumps([programs, note]).encode()).hexdigest()
    path = path_of(assignment, student)
    old = read(path)
    kept: dict[str, Judged] = {}
    if only and old and old.answer == report.answer:
        kept = {name: c for name, c in old.criteria.items() if name not in only}
    elif old and old.key == report.key and not (again or only):
        # All of them, unless the grading was broken off, or the machine too busy.
        kept = {n: c for n, c in old.criteria.items() if c["state"] != "blocked"}
    todo = [cell for cell in cells if cell.name not in kept]
    if old and not todo:
        return old
    report.secret = (old.secret if old and kept else "") or SECRET

    def keep(name: str, judged: Judged) -> None:
        """Save what is known by now: a grading may be broken off at any time."""
        kept[name] = judged
        report.criteria = {c.name: kept[c.name] for c in cells if c.name in kept}
        write(path, report)

    rig = Rig(source, programs) if unsafe else sandbox.Sandbox(source, programs)
    rig.secret = report.secret
    with closing(rig):
        try_all(rig, todo, keep)
    return report


def try_all(
    rig: Rig,
    cells: Collection[Criterion],
    tell: Callable[[str, Judged], None] = lambda name, judged: None,
) -> dict[str, Judged]:
    """Try the programs of `rig` by the criteria `cells`, as many at once as it may.

    Args:
        rig: which has the programs.
        cells: the criteria.
        tell: called with the name of each criterion and what became of it, in their
            order.

    Returns:
        By name, what became of each criterion: blocked, if the sandbox did not work.
    """
    found: dict[str, Judged] = {}
    with ThreadPoolExecutor(rig.at_once) as pool:
        tried = [pool.submit(_try, rig, cell) for cell in cells]
        for cell, future in zip(cells, tried, strict=True):
            try:
                state, lines = future.result()
            except SandboxError as error:
                state, lines = "blocked", [f"{cell.name}: blocked: {error}"]
            found[cell.name] = {"points": cell.points, "state": state, "lines": lines}
            tell(cell.name, found[cell.name])
    return found


def _try(rig: Rig, cell: Criterion) -> tuple[str, list[str]]:
    """Try the cases of a criterion until one is not passed; return its state, and a
    line for each case that was tried.
    """
    state, lines = "fail", []  # without a case nothing is passed
    for case in cell.cases:
        with TURN:
            verdict = try_case(rig, cell.name, case)
        state = verdict.state
        lines.append(line(rig.assignment, cell.name, case, verdict))
        if state != "pass":
            break
    return state, lines


def _key(assignment: str, programs: dict, note: str, cells: list[Criterion]) -> str:
    """Return a hash of all that a report depends on."""
    parts = [json.dumps([assignment, programs, note, [asdict(c) for c in cells]])]
    parts += [version("torch"), *(path.read_text() for path in judging(assignment))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def judging(assignment: str) -> list[Path]:
    """Return the files that judge an assignment: this one, and all that it needs.

    The rest of the engine, which exports grades, say, changes no verdict.
    """
    needed = modules(
        [
            "classroom.engine.judge",
            "classroom.engine.zygote",
            f"classroom.assignments.{assignment}.criteria",
        ]
    )
    return sorted({*needed.values(), *beside(load(assignment))})


def path_of(assignment: str, student: str) -> Path:
    """Return where the report of the last grading is, if there is one."""
    return COURSE / "reports" / assignment / f"{student}.json"


def write(path: Path, report: Report) -> None:
    """Save a report; whoever reads meanwhile finds the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(report), indent=1))
    part.replace(path)


def read(path: Path) -> Report | None:
    """Return a report that was saved; None if there is none."""
    with suppress(OSError, ValueError, TypeError):
        return Report(**json.loads(path.read_text()))
    return None


# --- many ---


def judge_all(
    assignment: str, names: Sequence[str], **options: Any
) -> Iterator[Report]:
    """Judge submissions, as many at once as there is room for; yield what is done.

    Args:
        assignment: what was handed in.
        names: of students.
        options: of `judge`.
    """
    pool = ThreadPoolExecutor(sandbox.SLOTS)
    waiting = {pool.submit(judge, assignment, n, **options): n for n in names}
    for done in as_completed(waiting):  # whoever breaks off waits for no other
        yield _result(done, assignment, waiting[done])


def _result(done: Future[Report], assignment: str, name: str) -> Report:
    """Return a submission's report; trouble of the judge's own blocks all of it."""
    try:
        return done.result()
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        report = Report(assignment, name, "", f"it could not be judged: {told}")
        for cell in criteria(assignment):
            lines = [f"{cell.name}: blocked: {told}"]
            report.criteria[cell.name] = Judged(
                points=cell.points, state="blocked", lines=lines
            )
        write(path_of(assignment, name), report)
        return report

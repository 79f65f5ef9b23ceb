"""What nbgrader does in this course: it writes what is judged, and what was found."""

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output
from nbgrader.preprocessors import (
    ClearHiddenTests,
    NbGraderPreprocessor,
    SaveAutoGrades,
)
from nbgrader.utils import is_grade

from classroom.engine.assignment import COURSE, load, notebook
from classroom.engine.judge import Judged, Report, path_of, read, why
from classroom.engine.submission import WRITEFILE, answers, stamp

Pair = tuple[NotebookNode, dict]  # of a notebook, or a cell, and the resources
STAGED = COURSE / "staged"
VERDICTS = "| Criterion | Verdict | Points | Why |\n|---|---|---|---|"
LONGEST_REASON = 150  # characters of it there
NO_TABLE = str.maketrans("`|", "'/")
ASKED = """## What is judged

| Criterion | Points | Condition |
|---|---|---|
"""
FOOT = """
A criterion has several cases; those in this notebook are some of them.
It gives its points if all of its cases pass."""
# A verdict is a long line, and its end, what the rank got, must be in sight. Our own
# table stands for nbgrader's list, in which every criterion is called "Test cell".
STYLE = """
#notebook pre { white-space: pre-wrap; overflow-wrap: anywhere; }
#notebook .output_error pre { border-left: 4px solid #d2413a; }
#notebook th, #notebook td { padding: 0.2em 1.5em 0.2em 0; text-align: left; }
#notebook table { margin-bottom: 1em; }
#notebook .anchor-link { display: none; }
#toc li:has(a:not([href^="#comment"])) { display: none; }
"""


class Conditions(NbGraderPreprocessor):
    """Tell students, in a table behind the goals, what is judged.

    A row is a criterion, its points, and the docstring of the function that judges it.
    """

    def preprocess(self, nb: NotebookNode, resources: dict) -> Pair:
        judges = load(resources["nbgrader"]["assignment"]).CRITERIA
        asked = [cell.metadata.nbgrader for cell in nb.cells if is_grade(cell)]
        rows = [
            f"| `{known.grade_id}` | {known.points:g} | "
            f"{condition(judges[known.grade_id])} |"
            for known in asked
        ]
        total = sum(known.points for known in asked)
        rows.append(f"| | {total:g} | |\n")
        heads = [cell.source[:7] for cell in nb.cells]
        goal = heads.index("## Goal") if "## Goal" in heads else 0
        cell = new_markdown_cell(ASKED + "\n".join(rows) + FOOT, id="conditions")
        nb.cells.insert(1 + goal, cell)
        return nb, resources


def condition(judge: Callable) -> str:
    """Return what a criterion asks for: the first paragraph of its docstring."""
    first = inspect.cleandoc(judge.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def stage(assignment: str, student: str) -> Path:
    """Write what nbgrader grades: our notebook with the student's programs in it.

    So neither a changed cell nor a broken file gets as far as nbgrader. What is wrong
    with the file is in the report.
    """
    source = load(assignment)
    submitted = notebook("submitted", assignment, student)
    programs, _ = answers(submitted, source.PROGRAMS)
    clean = nbformat.read(notebook("release", assignment), as_version=4)
    for cell in clean.cells:
        file = source.PROGRAMS.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        if file in programs:
            head = cell.source.partition("\n")[0]
            body = programs[file].rstrip("\n")
            cell.source = f"{head}\n{body}" if head.startswith(WRITEFILE) else body
    path = STAGED / student / assignment / submitted.name
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir(parents=True)
    nbformat.write(clean, path)
    if when := stamp(submitted)[0]:
        path.with_name("timestamp.txt").write_text(f"{when:%Y-%m-%d %H:%M:%S.%f} UTC")
    return path


def reported(resources: dict) -> Report:
    """Read the report of the submission that `resources` names."""
    about = resources["nbgrader"]
    if report := read(path_of(about["assignment"], about["student"])):
        return report
    raise RuntimeError(f"say `make grade A={about['assignment']}` instead")


class Judge(NbGraderPreprocessor):
    """Write what became of each criterion under the cell that grades it."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> Pair:
        self.report = reported(resources)
        resources["blocked"] = [
            name for name, c in self.report.criteria.items() if c["state"] == "blocked"
        ]
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> Pair:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if is_grade(cell) and cell.metadata.nbgrader.grade_id in self.report.criteria:
            cell.outputs = self._outputs(cell.metadata.nbgrader.grade_id)
        return cell, resources

    def _outputs(self, name: str) -> list[NotebookNode]:
        """Return the outputs of a cell; nbgrader takes an error for no points."""
        found = self.report.criteria[name]
        lines = [*found["lines"]]
        if name == next(iter(self.report.criteria)) and self.report.note:
            lines.insert(0, self.report.note)
        outputs = [new_output("stream", name="stdout", text="\n".join(lines) + "\n")]
        if found["state"] in ("fail", "not yet"):
            end = f"{found['state']}: no points for {name}"
            error = {"ename": found["state"], "evalue": name, "traceback": [end]}
            outputs.append(new_output("error", **error))
        return outputs


class SaveGrades(SaveAutoGrades):
    """Save the grades; what was blocked has none yet, and waits for a person.

    A grade that a person has given stands, and is marked for another look only where
    the judge has come to a new one.
    """

    def _add_score(self, cell: NotebookNode, resources: dict) -> None:
        name = cell.metadata["nbgrader"]["grade_id"]
        grade = self.gradebook.find_grade(
            name, self.notebook_id, self.assignment_id, self.student_id
        )
        before, waits = grade.auto_score, grade.needs_manual_grade
        super()._add_score(cell, resources)
        if name in resources.get("blocked", []):
            grade.auto_score = None
            grade.needs_manual_grade = grade.manual_score is None
        elif grade.manual_score is not None and grade.auto_score == before:
            grade.needs_manual_grade = waits
        self.gradebook.db.commit()


class ClearOurHiddenTests(ClearHiddenTests):
    """Take our hidden cases out; a program may write their marks as it likes."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, cell_index: int
    ) -> Pair:
        if is_grade(cell):
            return super().preprocess_cell(cell, resources, cell_index)
        return cell, resources


class Page(NbGraderPreprocessor):
    """Begin the feedback with a table of all verdicts, and let no line be cut off."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> Pair:
        resources["inlining"]["css"].append(STYLE)
        report, rows = reported(resources), []
        for cell in filter(is_grade, nb.cells):
            known = cell.metadata.nbgrader
            found = report.criteria[known.grade_id]
            points = f"{known.score:g} of {known.points:g}"
            link = f"[{known.grade_id}](#{known.grade_id})"
            rows.append(f"| {link} | {found['state']} | {points} | {_why(found)} |")
        notes = [report.note] if report.note else []
        text = "\n\n".join([*notes, "\n".join([VERDICTS, *rows])])
        nb.cells.insert(0, new_markdown_cell(text))
        return nb, resources


def _why(found: Judged) -> str:
    """Return the beginning of the reason, which may be anything, as code in a table."""
    words = shorten(why(found), LONGEST_REASON, placeholder=" …").translate(NO_TABLE)
    return f"`{words}`" if words else ""

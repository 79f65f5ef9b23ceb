"""What is judged: a table that `make release` writes into the students' notebook.

A row is a criterion, its points, and the docstring of the function that judges it, so
that what students are told and what is judged stand in one place.
"""

import inspect
from collections.abc import Callable

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade

from classroom.engine.assignment import load

HEAD = """## What is judged

| Criterion | Points | Condition |
|---|---|---|
"""
FOOT = """
A criterion has several cases; those in this notebook are some of them.
It gives its points if all of its cases pass."""


class Conditions(NbGraderPreprocessor):
    """Put the table behind the goals, or else behind the notebook's first cell."""

    def preprocess(
        self, nb: NotebookNode, resources: dict
    ) -> tuple[NotebookNode, dict]:
        judges = load(resources["nbgrader"]["assignment"]).CRITERIA
        asked = [cell.metadata.nbgrader for cell in nb.cells if is_grade(cell)]
        rows = [
            f"| `{known.grade_id}` | {known.points:g} | "
            f"{condition(judges[known.grade_id])} |"
            for known in asked
        ]
        total = sum(known.points for known in asked)
        rows.append(f"| | {total:g} | |\n")
        goals = [
            number
            for number, cell in enumerate(nb.cells)
            if cell.cell_type == "markdown" and cell.source.startswith("## Goal")
        ]
        cell = new_markdown_cell(HEAD + "\n".join(rows) + FOOT, id="conditions")
        nb.cells.insert(1 + (goals[0] if goals else 0), cell)
        return nb, resources


def condition(judge: Callable) -> str:
    """Return what a criterion asks for: the first paragraph of its docstring."""
    first = inspect.cleandoc(judge.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")

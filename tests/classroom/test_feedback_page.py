"""The feedback begins with every verdict, and cuts no line off."""

import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

from nbformat.v4 import new_code_cell, new_notebook, new_output  # noqa: E402

from classroom.engine.preprocessors import STYLE, Page  # noqa: E402

pytestmark = pytest.mark.sandbox


def graded(name: str, score: float, line: str, end: str = "") -> dict:
    outputs = [new_output("stream", name="stdout", text=f"{name}, 2 ranks: {line}\n")]
    if end:
        outputs.append(new_output("error", ename=end, evalue=name, traceback=[end]))
    known = {"grade": True, "grade_id": name, "points": 2, "score": score}
    return new_code_cell(metadata={"nbgrader": known}, outputs=outputs)


def test_the_page_begins_with_every_verdict():
    cells = [
        graded("right", 2, "pass"),
        graded("any_length", 0, "fail: rank 0 waits", end="fail"),
        graded("any_dtype", 0, "not yet", end="not yet"),
        graded("messages", 0, "blocked: needs 2 GPUs"),
    ]
    resources = {"inlining": {"css": []}}
    page, resources = Page().preprocess(new_notebook(cells=[*cells]), resources)
    assert page.cells[0].source.splitlines()[2:] == [
        "| [right](#right) | pass | 2 of 2 |",
        "| [any_length](#any_length) | fail | 0 of 2 |",
        "| [any_dtype](#any_dtype) | not yet | 0 of 2 |",
        "| [messages](#messages) | blocked | 0 of 2 |",
    ]
    assert page.cells[1:] == cells
    assert resources["inlining"]["css"] == [STYLE]

"""The feedback begins with every verdict, and cuts no line off."""

import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

from course import as_notebook, solution, starter  # noqa: E402
from nbformat import NotebookNode, reads, writes  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

from classroom.engine import preprocessors  # noqa: E402
from classroom.engine.judge import Report  # noqa: E402
from classroom.engine.preprocessors import (  # noqa: E402
    STYLE,
    ClearOurHiddenTests,
    Judge,
    Page,
)

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("answer", [starter("ring"), solution("ring")])
def test_what_is_staged_is_ours_but_for_programs_and_the_time(
    answer, tmp_path, monkeypatch
):
    def place(step, name, student="."):
        return tmp_path / step / student / name / f"{name}.ipynb"

    ours, theirs = (as_notebook("ring", a) for a in (starter("ring"), answer))
    theirs.cells = [c for c in theirs.cells if not c.source.startswith("check(")]
    for path, cells in (
        (place("release", "ring"), ours),
        (place("submitted", "ring", "anna"), theirs),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(writes(cells))
    path.with_name("timestamp.txt").write_text("2026-03-06 12:00:00.5+01:00")
    monkeypatch.setattr(preprocessors, "notebook", place)
    monkeypatch.setattr(preprocessors, "STAGED", tmp_path / "staged")
    for _ in range(2):  # whatever an earlier grading has left
        staged = preprocessors.stage("ring", "anna")
    expected = as_notebook("ring", answer).cells
    told = [cell.source.rstrip() for cell in reads(staged.read_text(), 4).cells]
    assert told == [cell.source.rstrip() for cell in expected]
    when = staged.with_name("timestamp.txt").read_text()
    assert when == "2026-03-06 11:00:00.500000 UTC"


def graded(name: str, score: float) -> NotebookNode:
    known = {"grade": True, "grade_id": name, "points": 2, "score": score}
    return new_code_cell(metadata={"nbgrader": known})


@pytest.fixture
def page(monkeypatch):
    """Return a function: by criterion the last line of the report, then the page."""

    def begun(note: str = "", **lines: str) -> NotebookNode:
        criteria = {
            name: {"points": 2, "state": line.partition(":")[0], "lines": [line]}
            for name, line in lines.items()
        }
        for name, found in criteria.items():
            found["lines"] = [f"{name}, 2 ranks: {line}" for line in found["lines"]]
        report = Report("ring", "anna", "", note, criteria=criteria)
        monkeypatch.setattr(preprocessors, "read", lambda path: report)
        about = {"assignment": "ring", "student": "anna"}
        resources = {"inlining": {"css": []}, "nbgrader": about}
        cells = [graded(name, 2 * (line == "pass")) for name, line in lines.items()]
        found, resources = Page().preprocess(new_notebook(cells=[*cells]), resources)
        assert resources["inlining"]["css"] == [STYLE] and found.cells[1:] == cells
        return found.cells[0].source.splitlines()

    return begun


def test_the_page_begins_with_every_verdict_and_its_reason(page):
    lines = page(
        right="pass",
        any_length="fail: rank 0 waits\n  at `a|b`",
        any_dtype="not yet: no stub",
        messages="blocked: needs 2 GPUs",
        in_place=f"fail: {'x ' * 200}",
    )
    assert lines[2:-1] == [
        "| [right](#right) | pass | 2 of 2 |  |",
        "| [any_length](#any_length) | fail | 0 of 2 | `rank 0 waits at 'a/b'` |",
        "| [any_dtype](#any_dtype) | not yet | 0 of 2 | `no stub` |",
        "| [messages](#messages) | blocked | 0 of 2 | `needs 2 GPUs` |",
    ]
    assert lines[-1].endswith("x x …` |") and len(lines[-1]) < 200


def test_what_a_program_says_makes_no_verdict(page):
    *_, line = page(right="fail: rank 0: OSError: x: blocked: y")
    assert line.endswith("| fail | 0 of 2 | `rank 0: OSError: x: blocked: y` |")


def test_the_page_begins_with_what_is_wrong_with_the_files(page):
    note = "2 cells write ring.py: the last one counts"
    assert page(note, right="pass")[0] == note


def test_only_our_own_cells_have_hidden_tests():
    mark = "### BEGIN HIDDEN TESTS"
    case = f"check(\n    {mark}\n    seed\n    ### END HIDDEN TESTS\n)"
    tests = graded("right", 2) | {"source": case}
    cells = [new_code_cell(f"{mark}\nx = 1"), NotebookNode(tests)]
    page, _ = ClearOurHiddenTests().preprocess(new_notebook(cells=cells), {})
    assert [cell.source for cell in page.cells] == [f"{mark}\nx = 1", "check(\n)"]


def shown(**lines: str) -> dict[str, str]:
    """Return by criterion what stands under its cell; each has failed in one case."""
    criteria = {
        name: {"points": 1, "state": "fail", "lines": [f"{name}, 2 ranks: {line}"]}
        for name, line in lines.items()
    }
    judge = Judge()
    judge.report = Report(
        "ring", "anna", "", note="2 cells write ring.py", criteria=criteria
    )
    return {name: judge._outputs(name)[0].text for name in lines}


def test_the_note_is_told_once():
    page = shown(right="fail: no", in_place="fail: rank 0 is late")
    assert page["right"] == "2 cells write ring.py\nright, 2 ranks: fail: no\n"
    assert page["in_place"] == "in_place, 2 ranks: fail: rank 0 is late\n"


@pytest.mark.parametrize("state", ["pass", "blocked", "fail", "not yet"])
def test_an_error_stands_for_no_points(state):
    judge = Judge()
    right = {"points": 1, "state": state, "lines": [f"right: {state}"]}
    judge.report = Report("ring", "anna", "", criteria={"right": right})
    errors = [o for o in judge._outputs("right") if o.output_type == "error"]
    assert bool(errors) == (state in ("fail", "not yet"))

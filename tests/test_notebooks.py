"""What nbval cannot see: notebooks and programs agree, all lessons have one form."""

import re

import pytest
from conftest import PROGRAMS

pytest.importorskip("nbformat", reason="the notebooks' tests need Jupyter")

from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

from ddp_lab import ROOT  # noqa: E402
from tools import new_lines  # noqa: E402
from tools import notebooks as kit  # noqa: E402

HEADINGS = [
    "Goal",
    "Picture",
    "Predict",
    "Code",
    "Run",
    "Read the output",
    "Break it",
    "Build it",
    "Summary",
]

lessons = pytest.mark.parametrize("path", kit.lessons(), ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in kit.read(path).cells if cell.cell_type == kind]


@lessons
def test_the_committed_programs_are_what_the_cells_write(path):
    for program, text in kit.programs(path):
        assert program.read_bytes() == text.encode(), program.name


def test_every_program_is_written_by_one_notebook():
    written = [program for path in kit.lessons() for program, _ in kit.programs(path)]
    assert len(written) == len(set(written))
    assert set(written) == set(PROGRAMS)


@lessons
def test_the_notebook_is_normalised(path):
    tidy = kit.normalise(kit.with_new_lines(kit.read(path), path))
    assert path.read_text() == kit.dumps(tidy)


def test_what_is_new_in_a_program_is_told_under_it():
    first = ['"""Says', "it.", '"""', "import os", "a = 1", "", "b = 2"]
    second = ['"""Another."""', '"""', "import os", "a = 1", "", "b = 3", "c", "a = 1"]
    known = set(first)
    assert new_lines.says(first, set()) == "*All of this file is new.*"
    assert new_lines.says(second, known) == "*New in this file: lines 6–7.*"
    assert new_lines.says(first, known) == (
        "*New in this file: nothing but its docstring.*"
    )
    far = [f"line {number}" for number in range(40)]
    told = new_lines.ranges([n for n in range(40) if n % 4 == 0 and far])
    assert len(told) <= new_lines.MOST and told[0][0] == 0 and told[-1][1] == 36


def test_the_line_about_new_lines_is_written_once_and_stays_with_its_program():
    program = new_code_cell('%%writefile a.py\n"""A."""\n"""\nx = 1')
    again = new_code_cell(program.source)
    notebook = new_notebook(cells=[program, new_code_cell("run"), again])
    for _ in range(2):
        new_lines.refresh(notebook, set())
    told = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert told == [
        "*All of this file is new.*",
        "*New in this file: nothing but its docstring.*",
    ]
    assert [cell.cell_type[:4] for cell in notebook.cells[:2]] == ["code", "mark"]


@lessons
def test_the_notebook_was_executed_and_is_small(path):
    assert path.stat().st_size <= 200 * 1024
    errors = [
        output.evalue
        for cell in cells(path, "code")
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert errors == []
    assert any(cell.outputs for cell in cells(path, "code"))


@lessons
def test_the_lesson_opens_as_all_do(path):
    first, second = cells(path, "code")[:2]
    assert first.source == "%load_ext ddp_lab"
    assert second.metadata.get("tags") == ["parameters"]
    assert re.match(r"nproc = \d+  # ", second.source)


@lessons
def test_the_headings_come_in_their_order(path):
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    found = [h.split(":")[0].strip() for h in re.findall(r"^## (.*)$", text, re.M)]
    assert set(found) == set(HEADINGS)
    first = [found.index(heading) for heading in HEADINGS]
    assert first == sorted(first)
    assert re.match(r"# \d+ · \w", cells(path, "markdown")[0].source)
    assert "| Minutes | Ranks | Needs | Before this |" in text


@lessons
def test_each_heading_says_what_is_below_it(path):
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    headings = re.findall(r"^##+ (.*)$", text, re.M)
    assert len(set(headings)) == len(headings), sorted(headings)


@lessons
def test_a_guess_is_made_before_the_run(path):
    for cell in cells(path, "code"):
        guesses = re.search(r"\b(predict|suspect)\(", cell.source)
        assert not (guesses and "%torchrun" in cell.source), cell.source


@lessons
def test_two_long_code_cells_have_prose_between_them(path):
    previous = ""
    for cell in kit.read(path).cells:
        source = cell.source if cell.cell_type == "code" else ""
        assert min(len(source.splitlines()), len(previous.splitlines())) < 15
        previous = source


@lessons
def test_the_lesson_predicts_breaks_and_builds(path):
    text = "\n".join(cell.source for cell in cells(path, "code"))
    assert "predict(" in text and ".compare(" in text
    assert "--expect-failure" in text
    # A program with a gap, or a sick one and the change that cures it.
    assert "/exercise" in text or 'old, new = "", ""' in text


@lessons
def test_every_run_is_kept_by_name(path):
    for cell in cells(path, "code"):
        for line in cell.source.splitlines():
            if "%torchrun" in line or re.search(r"%python\b", line):
                assert re.match(r"\s*\w+ = %(torchrun|python) ", line), line
            assert not line.startswith("!torchrun")


@lessons
def test_the_readme_tells_the_same_minutes_and_ranks(path):
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    minutes, ranks = re.search(r"\|---\|\n\| (\d+) \| (\d+) \|", text).groups()
    assert f"nproc = {ranks} " in cells(path, "code")[1].source
    readme = (ROOT / "README.md").read_text()
    link = f"[{path.stem}](notebooks/{path.name})"
    (row,) = [row for row in readme.splitlines() if link in row]
    assert f"| {minutes} | {ranks} |" in row

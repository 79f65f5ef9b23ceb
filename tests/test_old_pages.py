"""The lesson on old pages: every row is quoted, tried or read, and put right."""

import ast
import re
import sys
import warnings

import pytest

pytest.importorskip("nbformat", reason="the notebooks' tests need Jupyter")

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.old_pages.tutorial_2017 import judge  # noqa: E402
from tools import notebooks as kit  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "17_what_old_pages_say.ipynb"
ROWS = set(range(1, 39))
# Those that nothing here can try; a table says what was read of them.
READ = {19, 20, 24, 31, 32, 33, 35}
FATES = {"stops", "warns", "hangs", "holds", "misleads"}
SAID, NOW = "| Row | Year | It says |", "| Row | Today | Lesson |"
BOTH = "| Row | Year | It says | Read | Lesson |"
LINK = re.compile(r"\[\d+\]\((\d\d_\w+\.ipynb)\)")
# A function of a program, or a fate that a cell of the notebook gives.
TRIED = re.compile(r"^def row_(\d+)\(|^\s*fate\[(\d+)\](?:, \w+)? = (.*)", re.M)


def sources(kind: str) -> list[str]:
    cells = kit.read(NOTEBOOK).cells
    return [cell.source for cell in cells if cell.cell_type == kind]


def tried(source: str) -> list[tuple[int, str]]:
    """Return each row that a cell tries, and where a notebook's cell has its fate."""
    found = TRIED.findall(source)
    return [(int(program or row), fate) for program, row, fate in found]


def table(text: str, head: str) -> list[tuple[int, list[str]]]:
    """Return row and further columns of all tables under this `head`."""
    bodies = re.findall(rf"^{re.escape(head)}\n\|---.*\n((?:\|.*\n?)+)", text, re.M)
    lines = [line for body in bodies for line in body.splitlines()]
    cells_of = [[c.strip() for c in line.strip("| ").split(" | ")] for line in lines]
    return [(int(number), rest) for number, *rest in cells_of]


def tables(head: str) -> dict[int, list[str]]:
    """Return what the lesson's tables under this `head` say; each row stands once."""
    found = table("\n\n".join(sources("markdown")), head)
    rows = dict(found)
    assert len(found) == len(rows), head
    return rows


def test_every_row_is_quoted_once_and_with_its_year():
    said, read = tables(SAID), tables(BOTH)
    assert set(read) == READ and set(said) == ROWS - READ
    for row, (year, line, *_) in (said | read).items():
        assert re.search(r"\b20(1[7-9]|2\d)\b", year) and len(line) > 10, row


def test_every_row_that_can_be_tried_is():
    rows = [row for source in sources("code") for row, _ in tried(source)]
    assert sorted(set(rows)) == sorted(ROWS - READ)
    assert len(rows) == len(set(rows))


def test_no_fate_is_typed_in():
    for source in sources("code"):
        for row, fate in tried(source):
            literal = fate and isinstance(ast.parse(fate).body[0].value, ast.Constant)
            assert not literal, f"row {row} is said to be {fate}"


def test_every_row_says_what_is_written_today_and_where_it_is_taught():
    today = tables(NOW) | {row: rest[2:] for row, rest in tables(BOTH).items()}
    assert set(today) == ROWS
    for row, (right, lessons) in today.items():
        assert len(right) > 10 and LINK.search(lessons), row


def test_a_row_is_quoted_before_it_runs_and_put_right_after():
    order: dict[tuple[str, int], int] = {}
    for number, cell in enumerate(kit.read(NOTEBOOK).cells):
        if cell.cell_type == "code":
            found = [("run", row) for row, _ in tried(cell.source)]
        else:
            found = [("said", row) for row, _ in table(cell.source, SAID)]
            found += [("now", row) for row, _ in table(cell.source, NOW)]
        order |= dict.fromkeys(found, number)
    for row in ROWS - READ:
        assert order["said", row] < order["run", row] < order["now", row], row


@pytest.mark.parametrize(
    ("line", "fate"),
    [
        (lambda: (1, 1), "holds"),
        (lambda: (1, 2), "misleads"),
        (lambda: ([][1], 1), "stops"),
        (lambda: (warnings.warn("deprecated", stacklevel=1), None), "warns"),
        (lambda: (_ for _ in ()).throw(RuntimeError("has timed out")), "hangs"),
        (lambda: sys.exit(2), "stops"),
    ],
)
def test_the_fate_is_what_happens(line, fate):
    assert judge(line)[0] == fate and fate in FATES


def test_a_row_that_is_tried_is_found():
    cell = "def row_3(rank):\n    pass\nfate[4], said = judge(x)\nfate[5] = 'holds'"
    assert tried(cell) == [(3, ""), (4, "judge(x)"), (5, "'holds'")]
    text = f"{NOW}\n|---|---|---|\n| 7 | `a` or b | [1](01_a.ipynb) |"
    assert table(text, NOW) == [(7, ["`a` or b", "[1](01_a.ipynb)"])]

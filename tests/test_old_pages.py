"""The lesson on old pages: every row is quoted, executed, asserted, and put right."""

import ast
import re
from collections import Counter

import pytest

pytest.importorskip("nbformat", reason="the notebooks' tests need Jupyter")

from ddp_lab import ROOT  # noqa: E402
from tools import notebooks as kit  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "15_what_old_pages_say.ipynb"
ROWS = range(1, 39)
FATES = {"stops", "warns", "hangs", "holds", "misleads"}
# In a code cell, what follows such a line up to the next one belongs to that row.
MARK = re.compile(r"^# Row (\d+)\n", re.MULTILINE)
LINK = re.compile(r"\[\d+\]\((\d\d_\w+\.ipynb)\)")


def sources(kind: str) -> list[str]:
    cells = kit.read(NOTEBOOK).cells
    return [cell.source for cell in cells if cell.cell_type == kind]


def executed(cells: list[str]) -> list[tuple[int, str]]:
    """Return each row that stands in code, and its part of the code."""
    found = []
    for source in cells:
        _, *parts = MARK.split(source)
        found += zip(map(int, parts[::2]), parts[1::2], strict=True)
    return found


def tables(cells: list[str], head: str) -> list[tuple[int, list[str]]]:
    """Return row and further columns of all tables under this `head`."""
    text = "\n\n".join(cells)
    bodies = re.findall(rf"^{re.escape(head)}\n\|---.*\n((?:\|.*\n?)+)", text, re.M)
    lines = [line for body in bodies for line in body.splitlines()]
    cells_of = [[c.strip() for c in line.strip("| ").split(" | ")] for line in lines]
    return [(int(number), rest) for number, *rest in cells_of]


def once_each(rows: list[int]) -> None:
    count = Counter(rows)
    assert sorted(count) == list(ROWS), set(ROWS) ^ set(count)
    assert max(count.values()) == 1, count.most_common(3)


def test_every_row_is_quoted_once_and_with_its_year():
    said = tables(sources("markdown"), "| Row | Year | It says |")
    once_each([row for row, _ in said])
    for row, (year, line) in said:
        assert re.search(r"\b20(1[7-9]|2\d)\b", year) and len(line) > 10, row


def test_every_row_is_executed_and_asserted():
    code = executed(sources("code"))
    once_each([row for row, _ in code])
    for row, part in code:
        # A magic is no Python; what it returns is what the row asserts.
        tree = ast.parse(re.sub(r"= %\w+ .*", "= None", part))
        asserts = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        assert asserts, f"row {row} asserts nothing"
        for test in asserts:
            names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
            assert names, f"row {row} asserts what is always so: {ast.unparse(test)}"


def test_every_row_has_a_fate():
    code = "\n".join(sources("code"))
    for row in ROWS:
        assert re.search(
            rf"^\s*fate\[{row}\](, \w+)? = |fate\.setdefault\({row},", code, re.M
        )
    assert set(re.findall(r'fate\[\d+\] = "(\w+)"', code)) <= FATES


def test_every_row_says_what_is_written_today_and_where_it_is_taught():
    today = tables(sources("markdown"), "| Row | Today | Lesson |")
    once_each([row for row, _ in today])
    for row, (right, lessons) in today:
        assert len(right) > 10 and LINK.findall(lessons), row


def test_a_row_is_quoted_before_it_runs_and_put_right_after():
    order = {}
    for number, cell in enumerate(kit.read(NOTEBOOK).cells):
        if cell.cell_type == "code":
            found = [("run", row) for row, _ in executed([cell.source])]
        else:
            text = [cell.source]
            found = [("said", r) for r, _ in tables(text, "| Row | Year | It says |")]
            found += [("now", r) for r, _ in tables(text, "| Row | Today | Lesson |")]
        order |= {(what, row): number for what, row in found}
    for row in ROWS:
        assert order["said", row] < order["run", row] < order["now", row], row


def test_a_row_that_is_lost_or_asserts_nothing_is_found():
    cells = ["# Row 1\nassert a\n# Row 2\nb = 1\n"]
    assert executed(cells) == [(1, "assert a\n"), (2, "b = 1\n")]
    with pytest.raises(AssertionError):
        once_each([row for row, _ in executed(cells)])
    table = (
        "| Row | Today | Lesson |\n|---|---|---|\n| 7 | `a` or b | [1](01_a.ipynb) |"
    )
    assert tables([table], "| Row | Today | Lesson |") == [
        (7, ["`a` or b", "[1](01_a.ipynb)"])
    ]

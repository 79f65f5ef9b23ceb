"""Each lesson runs twice in one kernel, as a reader does who has put in guesses."""

from copy import deepcopy

import pytest
from support import FULL

from tools import notebooks
from tools.notebooks import lessons

CELLS = {path.stem: notebooks.read(path).cells for path in lessons()}


def code(name):
    return [cell for cell in CELLS[name] if cell.cell_type == "code"]


@pytest.mark.parametrize("name", CELLS)
def test_the_first_cell_of_ranks_begins_with_new_ones(name):
    lines = [cell.source.partition("\n")[0] for cell in code(name)]
    starts = [line for line in lines if line.startswith("%%ranks")]
    assert not starts or starts[0].split()[-1].isdecimal(), starts[0]


@FULL
@pytest.mark.processes
@pytest.mark.parametrize("name", CELLS)
def test_a_lesson_runs_twice(name, clone):
    twice = notebooks.read(clone / "notebooks" / f"{name}.ipynb")
    twice.cells = [*code(name), *deepcopy(code(name))]
    for number, cell in enumerate(twice.cells):
        cell["id"] = f"cell-{number}"
    notebooks.client(twice, clone / "notebooks").execute()

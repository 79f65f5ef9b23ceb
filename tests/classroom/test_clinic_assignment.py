"""Clinic: the solution gets everything, the starter nothing, a mistake loses its part.

Run without a sandbox, which is faster; what a mistake loses does not depend on it.
"""

from dataclasses import dataclass
from functools import cache

import nbformat
import pytest
from course import FULL, solution, starter

from classroom.grading import clinic, judge
from classroom.grading.bench import Bench, try_case
from ddp_lab.kit import torchrun

CELLS = {cell.name: cell for cell in judge.criteria("clinic")}
FILE = {name: file for name, (file,) in clinic.NEEDS.items()}


def by_name(texts: dict[str, str]) -> dict[str, str]:
    """Return the programs by their names without an ending."""
    return {file.removesuffix(".py"): text for file, text in texts.items()}


def sick_programs() -> dict[str, str]:
    """Return what the cells before each cure write."""
    notebook = nbformat.read(judge.notebook("source", "clinic"), as_version=4)
    cells = {c.metadata.get("nbgrader", {}).get("grade_id"): c for c in notebook.cells}
    return {n: cells[f"sick_{n}"].source.partition("\n")[2] for n in clinic.PATIENTS}


SOLUTION, STARTER = by_name(solution("clinic")), by_name(starter("clinic"))
SICK = sick_programs()


@cache
def verdict(criterion: str, text: str):
    """Try `text` as the one program that a criterion looks at.

    The other programs are not there at all, so they can have no influence.
    """
    cases = CELLS[criterion].cases
    # A diagnosis costs no time; of a cure, the last case is the hardest.
    for case in cases if FULL or criterion.endswith("diagnosis") else cases[-1:]:
        found = try_case(clinic, criterion, Bench({FILE[criterion]: text}), case)
        if found.state != "pass":
            break
    return found


def program_of(criterion: str) -> str:
    """Return the name of the one program that a criterion looks at."""
    return FILE[criterion].removesuffix(".py")


@dataclass(frozen=True)
class Mistake:
    """A change to a solution, and the one criterion that it violates."""

    name: str
    criterion: str
    old: str
    new: str
    says: str
    """What the feedback says among other words."""

    @property
    def text(self) -> str:
        solution = SOLUTION[program_of(self.criterion)]
        assert solution.count(self.old) == 1
        return solution.replace(self.old, self.new)


MISTAKES = [
    Mistake(
        "nobody to blame",
        "goal_diagnosis",
        '"rank": 2',
        '"rank": None',
        "rank is not, line is right, cause is right",
    ),
    Mistake(
        "the line where it shows",
        "prices_diagnosis",
        '"rank": 0, "line": 31',
        '"rank": 0, "line": 34',
        "rank is right, line is not, cause is right",
    ),
    Mistake(
        "another cause",
        "leaders_diagnosis",
        '"cause": "group"',
        '"cause": "order"',
        "rank is right, line is right, cause is not",
    ),
    Mistake(
        "no such cause",
        "relay_diagnosis",
        '"cause": "circle"',
        '"cause": "deadlock"',
        "cause expected one of the list, got 'deadlock'",
    ),
    Mistake(
        "one patient forgotten",
        "score_diagnosis",
        'DIAGNOSES["score"] =',
        "other =",
        "there is no DIAGNOSES['score']",
    ),
    Mistake(
        "rank 0 decides by its own loss",
        "goal_cure",
        "dist.all_reduce(loss)",
        "dist.broadcast(loss, src=0); loss *= dist.get_world_size()",
        "rank 0 expected",
    ),
    Mistake(
        "as if there were two ranks",
        "relay_cure",
        "src=(rank - 1) % world_size",
        "src=1 - rank",
        "rank ",
    ),
    Mistake(
        "half as precise on all ranks",
        "prices_cure",
        "        table = torch.empty(count, dtype=torch.float64)\n",
        "        table = torch.empty(count, dtype=torch.float64)\n"
        "    table = table.float().double()\n",
        "rank 0 expected",
    ),
    Mistake(
        "the first rank of all",
        "leaders_cure",
        "src=nodes[mine][0], group=groups[mine]",
        "src=0",
        " expected ",
    ),
    Mistake(
        "a nap in place of waiting",
        "overlap_cure",
        "    work.wait()  # only now total is the sum\n",
        "    time.sleep(0.3)\n",
        "rank 0 expected",
    ),
    Mistake(
        "weighed by the share of rank 0",
        "score_cure",
        "return total[0] / total[1]",
        "return total[0] / (len(hits) * dist.get_world_size())",
        "rank 0 expected",
    ),
]
mistakes = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)


def test_the_points_are_ten():
    assert set(CELLS) == set(clinic.CRITERIA)
    assert sum(cell.points for cell in CELLS.values()) == 10


@pytest.mark.parametrize("patient", clinic.PATIENTS)
def test_the_guilty_lines_are_those_that_the_cure_changes(patient):
    case = CELLS[f"{patient}_diagnosis"].cases[-1]
    sick, cured = SICK[patient].splitlines(), SOLUTION[patient].splitlines()
    changed = [n for n, line in enumerate(sick, 1) if line not in cured]
    changed = [n for n in changed if n > 6]  # the docstring has lost a sentence
    moved = {"relay": {32, 33}, "overlap": {34, 35}}.get(patient, set())
    assert set(case["lines"]) & (set(changed) | moved)
    assert case["cause"] in clinic.CAUSES


@pytest.mark.parametrize("patient", clinic.PATIENTS)
def test_the_sick_program_fails_as_its_owner_says(patient, tmp_path):
    program = tmp_path / f"sick_{patient}.py"
    program.write_text(SICK[patient])
    run = torchrun(
        ["--nproc-per-node", "4", str(program)], timeout=4, expect_failure=True
    )
    hangs = patient in ("goal", "relay", "leaders")
    assert (run.failure.kind == "timeout") == hangs
    if patient == "goal":
        assert run.failure.rank == CELLS["goal_diagnosis"].cases[-1]["rank"]


@pytest.mark.parametrize("criterion", clinic.CRITERIA)
def test_the_solution_gets_full_marks(criterion):
    found = verdict(criterion, SOLUTION[program_of(criterion)])
    assert found.state == "pass", found


@pytest.mark.parametrize("criterion", clinic.CRITERIA)
def test_the_starter_gets_nothing(criterion):
    found = verdict(criterion, STARTER[program_of(criterion)])
    assert found.state == "not yet", found


@pytest.mark.parametrize("patient", clinic.PATIENTS)
def test_a_sick_program_is_no_cure(patient):
    assert verdict(f"{patient}_cure", SICK[patient]).state == "fail"


@mistakes
def test_a_mistake_costs_one_criterion(mistake):
    found = verdict(mistake.criterion, mistake.text)
    assert mistake.says in found.words and found.state in ("fail", "not yet"), found
    changed = program_of(mistake.criterion)
    for criterion in set(clinic.CRITERIA) - {mistake.criterion}:
        program = program_of(criterion)
        text = mistake.text if program == changed else SOLUTION[program]
        assert verdict(criterion, text).state == "pass", criterion


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DIAGNOSES = (",
        "DIAGNOSES = {'goal': print('executed')}",
        "DIAGNOSES['goal'] = [1]",
        "DIAGNOSES['goal'] = {'rank': True, 'line': 32, 'cause': 'alone'}",
        "DIAGNOSES['goal'] = {'rank': 2, 'line': [32], 'cause': []}",
        "[" * 10_000,
    ],
    ids=["empty", "broken", "a call", "a list", "a bool", "lists", "deep"],
)
def test_what_is_no_diagnosis_is_none(text, capsys):
    assert verdict("goal_diagnosis", text).state in ("fail", "not yet")
    assert capsys.readouterr().out == ""

"""Assignment 5: what is special to it; test_solutions.py has the rest."""

import nbformat
import pytest
from course import cells, solution, verdict

from classroom.assignments.clinic import criteria as clinic
from classroom.engine.assignment import notebook
from ddp_lab.kit import torchrun

pytestmark = pytest.mark.sandbox

CASES = {cell.name: cell.cases for cell in cells("clinic")}


def sick_programs() -> dict[str, str]:
    """Return what the cells before each cure write."""
    source = nbformat.read(notebook("source", "clinic"), as_version=4)
    by_id = {c.metadata.get("nbgrader", {}).get("grade_id"): c for c in source.cells}
    return {n: by_id[f"sick_{n}"].source.partition("\n")[2] for n in clinic.PATIENTS}


SICK = sick_programs()
HANG = "goal", "relay", "leaders"
SILENT = "relay", "leaders"  # without a sign of life the launcher waits longer
MOVED = {"relay": "    dist.recv(recv_buf, src=(rank - 1) % world_size)"}


def patients(slow: tuple[str, ...]) -> list:
    """Return the patients as parameters; of those in `slow` somebody has to wait."""
    return [
        pytest.param(name, marks=[pytest.mark.full] if name in slow else [])
        for name in clinic.PATIENTS
    ]


@pytest.mark.parametrize("patient", clinic.PATIENTS)
def test_the_guilty_lines_are_those_that_the_cure_changes(patient):
    case = CASES[f"{patient}_diagnosis"][-1]
    cured = solution("clinic")[f"{patient}.py"].splitlines()
    sick = SICK[patient].splitlines()
    line = clinic.diagnoses(solution("clinic")["diagnosis.py"])[patient]["line"]
    assert line in case["lines"] and line > 6  # the docstring has lost a sentence
    assert sick[line - 1] not in cured or sick[line - 1] == MOVED.get(patient)
    assert case["cause"] in clinic.CAUSES


@pytest.mark.parametrize("patient", patients(SILENT))
def test_the_sick_program_fails_as_its_owner_says(patient, tmp_path):
    program = tmp_path / f"sick_{patient}.py"
    program.write_text(SICK[patient])
    run = torchrun(
        ["--nproc-per-node", "4", str(program)], timeout=4, expect_failure=True
    )
    assert (run.failure.kind == "timeout") == (patient in HANG)
    if patient == "goal":
        assert run.failure.rank == CASES["goal_diagnosis"][-1]["rank"]


@pytest.mark.parametrize("patient", patients(HANG))
def test_a_sick_program_is_no_cure(patient):
    criterion, answer = f"{patient}_cure", {f"{patient}.py": SICK[patient]}
    cases = CASES[criterion][-1:]  # the hardest
    assert verdict("clinic", answer, criterion, cases).state == "fail"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DIAGNOSES = (",
        "DIAGNOSES = {'goal': print('executed')}",
        "DIAGNOSES['goal'] = [1]",
        "DIAGNOSES['goal'] = {'rank': True, 'line': 22, 'cause': 'alone'}",
        "DIAGNOSES['goal'] = {'rank': 2, 'line': [22], 'cause': []}",
        "[" * 10_000,
    ],
    ids=["empty", "broken", "a call", "a list", "a bool", "lists", "deep"],
)
def test_what_is_no_diagnosis_is_none(text, capsys):
    criterion, answer = "goal_diagnosis", {"diagnosis.py": text}
    found = verdict("clinic", answer, criterion, CASES[criterion])
    assert found.state in ("fail", "not yet")
    assert capsys.readouterr().out == ""

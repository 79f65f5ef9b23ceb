"""Assignment 5: what is special to it; test_solutions.py has the rest."""

import nbformat
import pytest
from course import cells, changed, solution, some, verdict, visible

from classroom.assignments.clinic import criteria as clinic
from classroom.engine.assignment import notebook
from classroom.engine.rig import Rig
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
    written = clinic.diagnoses(solution("clinic")["diagnosis.py"])
    line = clinic.plain(written[patient])["line"]
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


def test_who_writes_one_dict_with_a_call_loses_nothing_by_it():
    text = "DIAGNOSES = {'goal': dict(rank=2, line=22, cause='alone'),"
    text += "\n 'prices': {'rank': 0, 'line': 20, 'cause': 'unlike'},"
    text += "\n 'relay': {'rank': None, 'line': int('21'), 'cause': 'circle'}}"
    answer = {"diagnosis.py": text}
    found = {
        name: str(verdict("clinic", answer, criterion, CASES[criterion]))
        for name in ("goal", "prices", "relay", "score")
        for criterion in [f"{name}_diagnosis"]
    }
    assert found == {
        "goal": "pass",
        "prices": "pass",
        "relay": "fail: line 3: it is not written in plain numbers and strings",
        "score": "not yet: there is no DIAGNOSES['score'] = {...}",
    }


def test_a_file_that_is_no_python_says_so_once():
    answer = {"diagnosis.py": "DIAGNOSES = {}\nDIAGNOSES['goal'] = {\n"}
    found = [
        str(verdict("clinic", answer, f"{patient}_diagnosis", [{}]))
        for patient in clinic.PATIENTS
    ]
    assert found[0] == "fail: diagnosis.py is no Python: line 2: '{' was never closed"
    assert set(found[1:]) == {"fail: diagnosis.py is no Python: see goal_diagnosis"}


# --- cures in other styles ---

ISSUED = (
    "    work = dist.all_reduce(total, async_op=True)  # all ranks will hold the sum\n"
)
SEARCH = "    largest = search(x)\n"
WAIT = "    work.wait()  # only now total is the sum\n"
FLOAT32 = changed(
    "clinic",
    (
        "    total = torch.tensor([hits.sum(), len(hits)], dtype=torch.float64)\n",
        "    total = torch.tensor([float(hits.sum()), len(hits)])\n",
    ),
    (
        "    return total / dist.get_world_size(), largest\n",
        "    return total.double() / dist.get_world_size(), largest.item()\n",
    ),
)


@pytest.mark.parametrize(
    "criterion", [pytest.param("overlap_cure", marks=pytest.mark.full), "score_cure"]
)
def test_rounding_is_no_sickness(criterion):
    cases = visible("clinic")[criterion]
    assert str(verdict("clinic", FLOAT32, criterion, cases)) == "pass"


THREAD = """    import threading
    thread = threading.Thread(target=dist.all_reduce, args=[total])
    thread.start()
"""
SEARCHING = """    from concurrent.futures import ThreadPoolExecutor
    found = ThreadPoolExecutor().submit(search, x)
    dist.all_reduce(total)
"""
VIEW = "    numbers = x.numpy()\n" + ISSUED
MESSAGES = """    rank, count = dist.get_rank(), dist.get_world_size()
    others = [other for other in range(count) if other != rank]
    boxes = [torch.empty_like(x) for _ in others]
    works = [dist.isend(x, other) for other in others]
    works += [dist.irecv(box, other) for box, other in zip(boxes, others)]
"""
SUM = "    for work in works:\n        work.wait()\n    total += sum(boxes)\n"
FUNCTIONAL = """    import torch.distributed._functional_collectives as functional
    total = functional.all_reduce(total, "sum", dist.group.WORLD)
"""
STYLES = {  # in place of the three lines: the sum begins, the search, the sum is there
    "a thread": (THREAD, SEARCH, "    thread.join()\n"),
    "a search in a thread": (SEARCHING, "", "    largest = found.result()\n"),
    "a view taken before": (VIEW, SEARCH.replace("x", "numbers"), WAIT),
    "messages": (MESSAGES, SEARCH, SUM),
    "functional": (FUNCTIONAL, SEARCH, "    total = functional.wait_tensor(total)\n"),
    "a future": (ISSUED, SEARCH, "    (total,) = work.get_future().wait()\n"),
}


def overlapping(begin: str, search: str, wait: str) -> dict[str, str]:
    """Return the cures with other lines in that of overlap."""
    return changed("clinic", (ISSUED + SEARCH + WAIT, begin + search + wait))


@pytest.mark.parametrize("name", some(STYLES, "a search in a thread"))
def test_the_sum_may_travel_otherwise(name):
    answer, cases = overlapping(*STYLES[name]), visible("clinic")["overlap_cure"]
    assert str(verdict("clinic", answer, "overlap_cure", cases)) == "pass"


IDLE = {
    "waits first": (ISSUED, WAIT, SEARCH),
    "searches first": (SEARCH, ISSUED, WAIT),
    "searches first, in a thread": (
        SEARCHING.replace("    dist", "    found.result()\n    dist"),
        "",
        "    largest = found.result()\n",
    ),
    "messages, but waits first": (MESSAGES, SUM, SEARCH),
    "begins with the search's end": (SEARCH, THREAD, "    thread.join()\n"),
    "searches not at all": (ISSUED, "    largest = x.max()\n", WAIT),
}


@pytest.mark.parametrize("name", some(IDLE, "searches first"))
def test_the_sum_has_to_travel_meanwhile(name):
    answer, cases = overlapping(*IDLE[name]), visible("clinic")["overlap_cure"]
    found = verdict("clinic", answer, "overlap_cure", cases)
    assert str(found).startswith("fail: rank 0 does not search while the sum travels")


def test_nothing_of_a_run_counts_when_it_is_tried_again():
    order = clinic.Meanwhile(2, late=0.0)
    for _ in range(2):
        order(0, {"step": "start"})
        assert not order(1, {"step": "begin"}) and not order(0, {"step": "search"})
        assert order(1, {"step": "begin"}) and order(1, {"step": "end"})
        assert order(0, {"step": "search"}) and order.met()


GUESSED = """
import numpy as np
import torch
import torch.distributed as dist


def shift(x):
    shape = dist.get_world_size(), len(x)
    for seed in range(1000):
        all_x = np.random.default_rng(seed).integers(0, 100, shape).astype("f")
        if np.array_equal(all_x[dist.get_rank()], x.numpy()):
            return torch.from_numpy(all_x[dist.get_rank() - 1])
    raise LookupError("no such seed")
"""


def test_nobody_can_guess_what_the_others_have(monkeypatch):
    monkeypatch.setattr(Rig, "secret", "of this test", raising=False)
    case = {"ranks": 3, "length": 10, "seed": 13}
    found = verdict("clinic", {"relay.py": GUESSED}, "relay_cure", [case])
    assert "LookupError: no such seed" in found.words

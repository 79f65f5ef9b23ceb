"""Resume: the solution gets everything, the starter nothing, a mistake loses its part.

Run without a sandbox, which is faster; what a mistake loses does not depend on it.
"""

from dataclasses import dataclass

import pytest
from course import FULL, solution, starter

from classroom.grading import judge, resume
from classroom.grading.bench import Bench, try_case

SOLUTION = solution("resume")["resume.py"]
STARTER = starter("resume")["resume.py"]
CELLS = {cell.name: cell for cell in judge.criteria("resume")}


def cases(criterion: str) -> list[dict]:
    """Return the cases of a criterion, the visible ones first; one if time is short."""
    return CELLS[criterion].cases[: None if FULL else 1]


def verdict(text: str, criterion: str, case: dict):
    return try_case(resume, criterion, Bench({"resume.py": text}), case)


@dataclass(frozen=True)
class Mistake:
    """A change to the solution, and the one criterion that it violates."""

    name: str
    criterion: str
    old: str
    new: str
    says: str
    """What the feedback says among other words."""

    @property
    def text(self) -> str:
        assert SOLUTION.count(self.old) == 1
        return SOLUTION.replace(self.old, self.new)


MISTAKES = [
    Mistake(
        "momentum forgotten",
        "memory",
        'for name in "model", "optimizer", "scheduler":',
        'for name in "model", "scheduler":',
        "last weights: rank 0 expected",
    ),
    Mistake(
        "schedule begins anew",
        "memory",
        'for name in "model", "optimizer", "scheduler":',
        'for name in "model", "optimizer":',
        "last weights: rank 0 expected",
    ),
    Mistake(
        "epoch begins anew",
        "order",
        'run.done, run.sampler.position = shared["done"], shared["position"]',
        'run.done = shared["done"]',
        "last weights: rank 0 expected",
    ),
    Mistake(
        "next epoch is the first again",
        "order",
        '    run.sampler.generator.set_state(shared["order"])\n',
        "",
        "last weights: rank 0 expected",
    ),
    Mistake(
        "the noise of rank 0 for all",
        "noise",
        'saved["owns"][dist.get_rank()]',
        'saved["owns"][0]',
        "last weights: rank 0 expected",
    ),
    Mistake(
        "jitter forgotten",
        "noise",
        '    run.noise.set_state(own["noise"])\n',
        "",
        "last weights: rank 0 expected",
    ),
    Mistake(
        "a checkpoint is used up by loading it",
        "dies",
        '        put_back(run, {"shared": saved["shared"], "own": own})\n',
        """\
        put_back(run, {"shared": saved["shared"], "own": own})
        dist.barrier()
        path.unlink(missing_ok=True)
""",
        "expected to go on from step 4, got 0",
    ),
    Mistake(
        "a leftover stands in the way",
        "writing",
        'open(path.with_suffix(".tmp"), "wb")',
        'open(path.with_suffix(".tmp"), "xb")',
        "FileExistsError",
    ),
    Mistake(
        "the newest file has to be whole",
        "damaged",
        "            continue\n",
        "            raise\n",
        "rank ",
    ),
    Mistake(
        "only the newest is kept",
        "damaged",
        'sorted(folder.glob("step_*.pt"))[:-2]',
        'sorted(folder.glob("step_*.pt"))[:-1]',
        "expected to go on from step 4, got 0",
    ),
    Mistake(
        "any number of ranks will do",
        "refuses",
        "if here != there:",
        "if here < 0:",
        "rank ",
    ),
]
mistakes = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)


def test_the_points_are_ten():
    assert set(CELLS) == set(resume.CRITERIA)
    assert sum(cell.points for cell in CELLS.values()) == 10


@pytest.mark.parametrize("criterion", resume.CRITERIA)
def test_the_solution_gets_full_marks(criterion):
    for case in cases(criterion):
        assert str(verdict(SOLUTION, criterion, case)) == "pass", case


@pytest.mark.parametrize("criterion", resume.CRITERIA)
def test_the_starter_gets_nothing(criterion):
    found = verdict(STARTER, criterion, cases(criterion)[0])
    assert found.state == "not yet" and "NotImplementedError" in found.words


@mistakes
def test_a_mistake_is_found(mistake):
    for case in CELLS[mistake.criterion].cases:
        found = verdict(mistake.text, mistake.criterion, case)
        if found.state != "pass":
            break
    assert found.state == "fail" and mistake.says in found.words, found


@pytest.mark.skipif(not FULL, reason="make test-classroom tries it")
@mistakes
def test_a_mistake_costs_nothing_else(mistake):
    for criterion in set(resume.CRITERIA) - {mistake.criterion}:
        found = verdict(mistake.text, criterion, cases(criterion)[0])
        assert str(found) == "pass", criterion

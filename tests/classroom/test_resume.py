"""Resume: the solution gets everything, the starter nothing, a mistake loses its part.

Run without a sandbox, which is faster; what a mistake loses does not depend on it.
"""

import re
from dataclasses import dataclass

import pytest

pytest.importorskip("nbformat", reason="the classroom's tests need Jupyter")

import nbformat  # noqa: E402

from classroom.grading import resume  # noqa: E402
from classroom.grading.bench import Bench, try_case  # noqa: E402
from ddp_lab.kit import ROOT  # noqa: E402

SOURCE = ROOT / "classroom" / "source" / "resume" / "resume.ipynb"
CELLS = {
    cell.metadata.nbgrader.grade_id: cell.source
    for cell in nbformat.read(SOURCE, as_version=4).cells
    if "nbgrader" in cell.metadata
}
SOLUTION = CELLS["program"].partition("\n")[2]
STARTER = re.sub(
    r"### BEGIN SOLUTION.*?### END SOLUTION",
    "raise NotImplementedError()",
    SOLUTION,
    flags=re.DOTALL,
)


def cases(criterion: str) -> list[dict]:
    """Return the cases of a criterion, the visible ones first."""
    found = []
    exec(CELLS[criterion], {"check": lambda name, *given: found.extend(given)})
    return found


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
    points = {
        cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points
        for cell in nbformat.read(SOURCE, as_version=4).cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }
    assert set(points) == set(resume.CRITERIA) and sum(points.values()) == 10


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
    for case in cases(mistake.criterion):
        found = verdict(mistake.text, mistake.criterion, case)
        if found.state != "pass":
            break
    assert found.state == "fail" and mistake.says in found.words, found


@mistakes
def test_a_mistake_costs_nothing_else(mistake):
    for criterion in set(resume.CRITERIA) - {mistake.criterion}:
        found = verdict(mistake.text, criterion, cases(criterion)[0])
        assert str(found) == "pass", criterion

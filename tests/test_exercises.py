"""Every exercise: unsolved is no error, solved is said so, solved wrongly fails.

answers/SUBJECT/EXERCISE.py solves ddp_lab/SUBJECT/EXERCISE.py. What is in
tests/wrong_answers/SUBJECT/EXERCISE/ comes to mind and misses the idea: each file's
name says how. Puzzles are exercises, too; tests/right_answers has further solutions.
All answers to an exercise are judged in one launch, if none of them ends its ranks.
"""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import FULL, RESTARTS, STARTS_ITS_RANKS, name_of, smaller
from ranks import launch, tell_apart

from ddp_lab import ROOT
from ddp_lab.kit import Run, RunFailed, python, torchrun
from ddp_lab.kit.cell.program import FRAMES, Order, whole

pytestmark = pytest.mark.processes

ANSWERS, MISTAKES = ROOT / "answers", ROOT / "tests" / "wrong_answers"
OTHERS = ROOT / "tests" / "right_answers"
KINDS = ("exercise*.py", "puzzle*.py")
RIGHT = sorted(path for kind in KINDS for path in ANSWERS.glob(f"*/{kind}"))
ALSO_RIGHT = sorted(OTHERS.glob("*/*/*.py"))
if version("torch").startswith("2.11"):  # its gloo has no all_to_all of lists
    ALSO_RIGHT = [p for p in ALSO_RIGHT if "dist.all_to_all(" not in p.read_text()]
WRONG = sorted(MISTAKES.glob("*/*/*.py"))
REFERENCES = {"rpc/exercise_far.py", "rpc/exercise_specimens.py"}
ALONE = STARTS_ITS_RANKS | RESTARTS.keys() | REFERENCES
"""Exercises of which each answer has a launch of its own."""
NOT_COMPARED = {
    "nodes/exercise_shares",
    "rpc/exercise_specimens",
    "tensor/exercise_mesh",
}
"""Exercises whose outputs differ from run to run, so that nbval ignores them."""


def name(answer: Path) -> str:
    folder = next(f for f in (ANSWERS, OTHERS, MISTAKES) if answer.is_relative_to(f))
    return str(answer.relative_to(folder).with_suffix(""))


def program(answer: Path) -> Path:
    """Return the exercise that `answer` is for."""
    subject, exercise, *_ = Path(name(answer)).parts
    return ROOT / "ddp_lab" / subject / f"{exercise}.py"


def solve(answer: Path, folder: Path) -> Path:
    """Write the program that a cell with `answer` in it makes; return its path."""
    path, cell = program(answer).relative_to(ROOT), answer.read_text()
    order = Order.parse(f"{path} --from {path.parent / FRAMES / path.name}")
    if not cell.startswith('"""'):
        cell = f'"""Solved."""\n{cell}'
    # The program is its frame, and what the cell with the stub imports.
    made = whole(order, cell, lambda _: program(answer).read_text())
    solved = folder / name_of(program(answer))
    solved.parent.mkdir(parents=True)
    solved.write_text(made.text)
    return smaller(solved, folder / "smaller")


def start(path: Path, answer: Path, ranks: int, **options) -> Run:
    """Run an exercise, or a copy of it that is solved."""
    name = name_of(program(answer))
    if name in STARTS_ITS_RANKS:
        return python(f"{path} --nproc-per-node {ranks}", **options)
    if again := RESTARTS.get(name):
        return torchrun(f"--nproc-per-node {ranks} {again} {path}", **options)
    return launch(ranks, path, **options)


right = pytest.mark.parametrize("answer", RIGHT, ids=name)


def test_every_exercise_has_a_right_answer_and_a_wrong_one():
    programs = {p for kind in KINDS for p in (ROOT / "ddp_lab").glob(f"*/{kind}")}
    assert programs == {program(answer) for answer in RIGHT}
    assert programs == {program(answer) for answer in WRONG}


def test_notebooks_show_that_unsolved_is_not_yet():
    """So `make test` sees it there, and test_unsolved_is_not_yet is for the rest."""
    shown = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            compared = "nbval-ignore-output" not in cell["metadata"].get("tags", [])
            if compared and "not yet" in json.dumps(cell.get("outputs", [])).lower():
                source = "".join(cell["source"])
                shown |= {answer for answer in RIGHT if name(answer) in source}
    assert shown == {answer for answer in RIGHT if name(answer) not in NOT_COMPARED}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(each, marks=[] if name(each) in NOT_COMPARED else [FULL])
        for each in RIGHT
    ],
    ids=name,
)
def test_unsolved_is_not_yet(answer, tmp_path):
    run = start(program(answer), answer, 2)
    assert run["solved"] == [False, False]
    assert all("not yet" in "\n".join(lines) for lines in run.lines)


@right
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])
def test_the_solution_is_right(answer, ranks, tmp_path):
    run = start(solve(answer, tmp_path), answer, ranks)
    assert run["solved"] == [True] * ranks


def all_answers(answer: Path) -> list[Path]:
    """Return the wrong answers to an exercise, and then the right ones.

    In this order, as ranks that a wrong one has damaged would refuse the others.
    """
    wrong, right = (folder / name(answer) for folder in (MISTAKES, OTHERS))
    found = [each for each in WRONG if each.parent == wrong]
    return [*found, answer, *(each for each in ALSO_RIGHT if each.parent == right)]


@right
def test_right_answers_pass_and_no_wrong_one_does(answer, tmp_path):
    answers = all_answers(answer)
    wrong = [each for each in answers if each in WRONG]
    solved = {
        solve(each, tmp_path / str(turn)): each for turn, each in enumerate(answers)
    }
    if name_of(program(answer)) in ALONE:
        found = [p for p in solved if passes(p, answer)]
    else:
        paths = list(solved)
        ended, printed = tell_apart(3, paths[: len(wrong)], paths[len(wrong) :])
        found = [path for path, failure in ended.items() if not failure]
        assert "not yet" not in printed
    passed = {solved[path] for path in found}
    assert not [name(each) for each in wrong if each in passed]
    assert not [name(each) for each in answers if each not in {*wrong, *passed}]


def passes(path: Path, answer: Path) -> bool:
    """Return whether three ranks find an answer right; it is the only one they see."""
    try:
        run = start(path, answer, 3)
    except RunFailed:
        return False
    assert run["solved"] == [True] * 3
    return True


def test_the_shares_are_right_on_two_nodes(tmp_path):
    path = solve(ANSWERS / "nodes" / "exercise_shares.py", tmp_path)
    run = torchrun(f"--nnodes 2 --nproc-per-node 2 {path}")
    assert run["share"] == [0.5] * 4

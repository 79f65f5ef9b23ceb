"""Every exercise: unsolved is no error, solved is said so, solved wrongly fails.

answers/SUBJECT/EXERCISE.py solves ddp_lab/SUBJECT/EXERCISE.py. What is in
tests/wrong_answers/SUBJECT/EXERCISE/ comes to mind and misses the idea: each file's
name says how. Puzzles are exercises, too; tests/right_answers has further solutions.
"""

import ast
from pathlib import Path

import pytest
from conftest import FULL, STARTS_ITS_RANKS, name_of, over_tcp, smaller
from ranks import launch

from ddp_lab import ROOT
from ddp_lab.kit import Run, python, torchrun

pytestmark = pytest.mark.processes

ANSWERS, MISTAKES = ROOT / "answers", ROOT / "tests" / "wrong_answers"
OTHERS = ROOT / "tests" / "right_answers"
KINDS = ("exercise*.py", "puzzle*.py")
RIGHT = sorted(path for kind in KINDS for path in ANSWERS.glob(f"*/{kind}"))
ALSO_RIGHT = sorted(OTHERS.glob("*/*/*.py"))
WRONG = sorted(MISTAKES.glob("*/*/*.py"))


def name(answer: Path) -> str:
    folder = next(f for f in (ANSWERS, OTHERS, MISTAKES) if answer.is_relative_to(f))
    return str(answer.relative_to(folder).with_suffix(""))


def program(answer: Path) -> Path:
    """Return the exercise that `answer` is for."""
    subject, exercise, *_ = Path(name(answer)).parts
    return ROOT / "ddp_lab" / subject / f"{exercise}.py"


def solve(answer: Path, folder: Path) -> Path:
    """Put the functions of `answer` in the place of the program's; return its path."""
    text, solution = program(answer).read_text(), answer.read_text()
    for function in ast.parse(solution).body:
        if isinstance(function, ast.FunctionDef):
            stub = next(
                node
                for node in ast.parse(text).body
                if getattr(node, "name", None) == function.name
            )
            stub_text = ast.get_source_segment(text, stub)
            answered = ast.get_source_segment(solution, function)
            text = text.replace(stub_text, answered)
    path = folder / name_of(program(answer))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return over_tcp(smaller(path, folder / "smaller"), folder / "tcp")


def start(path: Path, answer: Path, ranks: int, restarts, **options) -> Run:
    """Run an exercise, or a copy of it that is solved."""
    name = name_of(program(answer))
    if name in STARTS_ITS_RANKS:
        return python(f"{path} --nproc-per-node {ranks}", **options)
    if again := restarts(name):
        return torchrun(f"--nproc-per-node {ranks} {again} {path}", **options)
    return launch(ranks, path, **options)


right = pytest.mark.parametrize("answer", RIGHT, ids=name)


def test_every_exercise_has_a_right_answer_and_a_wrong_one():
    programs = {p for kind in KINDS for p in (ROOT / "ddp_lab").glob(f"*/{kind}")}
    assert programs == {program(answer) for answer in RIGHT}
    assert programs == {program(answer) for answer in WRONG}


@right
def test_unsolved_is_not_yet(answer, tmp_path, restarts):
    path = over_tcp(program(answer), tmp_path / "tcp")
    run = start(path, answer, 2, restarts)
    assert run["solved"] == [False, False]
    assert all("not yet" in "\n".join(lines) for lines in run.lines)


@right
@pytest.mark.parametrize("ranks", [2, 3, pytest.param(4, marks=FULL)])
def test_the_solution_is_right(answer, ranks, tmp_path, restarts):
    run = start(solve(answer, tmp_path), answer, ranks, restarts)
    assert run["solved"] == [True] * ranks


@pytest.mark.parametrize("answer", ALSO_RIGHT, ids=name)
def test_another_style_is_right(answer, tmp_path, restarts):
    run = start(solve(answer, tmp_path), answer, 3, restarts)
    assert run["solved"] == [True] * 3


@pytest.mark.parametrize("answer", WRONG, ids=name)
def test_a_wrong_answer_fails(answer, tmp_path, restarts):
    path = solve(answer, tmp_path)
    run = start(path, answer, 3, restarts, timeout=20, expect_failure=True)
    assert run.failure.kind != "launch"


def test_the_shares_are_right_on_two_nodes(tmp_path):
    path = solve(ANSWERS / "nodes" / "exercise_shares.py", tmp_path)
    run = torchrun(f"--nnodes 2 --nproc-per-node 2 {path}")
    assert run["share"] == [0.5] * 4

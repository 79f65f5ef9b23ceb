"""Every exercise: unsolved is no error, solved is said so, solved wrongly fails."""

import ast

import pytest
from conftest import FULL

from ddp_lab import ROOT
from ddp_lab.kit import torchrun

pytestmark = pytest.mark.processes

SOLUTIONS = sorted((ROOT / "tests" / "solutions").glob("*.py"))
# One plausible wrong answer for each: a text in the solution, and what to put there.
WRONG = {
    "checkpoint": ('"noise": run.noise.get_state(),', ""),
    "cifar10": ("squares / count - mean**2", "squares / count"),
    "collectives": ("padded[: len(tensor)]", "padded"),
    "ddp": (" * dist.get_world_size()", ""),
    "model": ("key=peak)", "key=sum)"),
    "p2p": ("send_buf = recv_buf", "send_buf = send_buf"),
    "start": ("(rank < extra)", "0"),
}

exercises = pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda path: path.stem)


def solve(solution, text: str, folder) -> str:
    """Put the functions in `text` in the place of the program's; return its path."""
    program = (ROOT / "ddp_lab" / solution.stem / "exercise.py").read_text()
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            stub = next(
                node
                for node in ast.parse(program).body
                if getattr(node, "name", None) == function.name
            )
            stub_text = ast.get_source_segment(program, stub)
            answer = ast.get_source_segment(text, function)
            program = program.replace(stub_text, answer)
    path = folder / f"{solution.stem}.py"
    path.write_text(program)
    return str(path)


def test_every_exercise_has_a_solution():
    programs = {p.parent.name for p in (ROOT / "ddp_lab").glob("*/exercise.py")}
    assert programs == {path.stem for path in SOLUTIONS} == set(WRONG)


@exercises
def test_unsolved_is_not_yet(solution):
    run = torchrun(f"--nproc-per-node 2 ddp_lab/{solution.stem}/exercise.py")
    assert run["solved"] == [False, False]
    assert all("not yet" in "\n".join(lines) for lines in run.lines)


@exercises
@pytest.mark.parametrize("ranks", [2, 3, pytest.param(4, marks=FULL)])
def test_the_solution_is_right(solution, ranks, tmp_path):
    path = solve(solution, solution.read_text(), tmp_path)
    run = torchrun(f"--nproc-per-node {ranks} {path}")
    assert run["solved"] == [True] * ranks


@exercises
def test_a_wrong_answer_fails(solution, tmp_path):
    old, new = WRONG[solution.stem]
    text = solution.read_text()
    assert text.count(old) == 1
    path = solve(solution, text.replace(old, new), tmp_path)
    run = torchrun(f"--nproc-per-node 3 {path}", timeout=20, expect_failure=True)
    assert run.failure.kind in ("exception", "timeout")

"""Every exercise: unsolved is no error, solved is said so, solved wrongly fails.

answers/SUBJECT/EXERCISE.py solves ddp_lab/SUBJECT/EXERCISE.py, as readers see it. Each
cell of tests/answers/SUBJECT/EXERCISE.py is a further answer: a right one that goes
another way, or a wrong one that comes to mind and misses the idea, as its name says.
Functions that it leaves out are those of the answer that readers see. A cell of nothing
but CHANGES = {old: new, ...} is that answer with a few lines changed.
Puzzles are exercises, too. All answers to an exercise are judged in one launch, if none
of them ends its ranks. `make test` judges the answer that readers see, and the first
wrong one; test-all, all.
"""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import RESTARTS, SCRIPTS, STARTS_ITS_RANKS, name_of, smaller
from ranks import launch, tell_apart
from support import FULL

from ddp_lab import ROOT
from ddp_lab.kit import python, torchrun
from ddp_lab.kit.cell.compose import FRAMES, Order, whole
from whichrank import Run, RunFailed

pytestmark = pytest.mark.processes

SHOWN, OTHERS = ROOT / "answers", ROOT / "tests" / "answers"
CELL = re.compile(r"^# %% (wrong|right): (.+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What may stand in the cell of an exercise."""

    exercise: str
    """SUBJECT/EXERCISE"""
    name: str
    is_right: bool
    text: str

    def __str__(self) -> str:
        return f"{self.exercise}, {self.name}" if self.name else self.exercise

    @property
    def program(self) -> Path:
        """The exercise that it is for, unsolved."""
        return ROOT / "ddp_lab" / f"{self.exercise}.py"


def shown() -> list[Answer]:
    """Return the answer to each exercise that readers see."""
    paths = [*SHOWN.glob("*/exercise*.py"), *SHOWN.glob("*/puzzle*.py")]
    return [
        Answer(_exercise(path), "", True, path.read_text())
        for path in sorted(paths)
        if path.parent.name != SCRIPTS.name  # a whole script: see test_script.py
    ]


def others() -> list[Answer]:
    """Return all answers of tests/answers."""
    found = []
    for path in sorted(OTHERS.glob("*/*.py")):
        before, *parts = CELL.split(path.read_text())
        assert not before, f"{path} does not begin with a cell"
        exercise = _exercise(path)
        answer = (SHOWN / f"{exercise}.py").read_text()
        shown = _functions(answer)
        program = _functions((ROOT / "ddp_lab" / f"{exercise}.py").read_text())
        asked = shown.keys() & program.keys()
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            text = _changed(answer, text)
            own = _functions(text).keys()
            # A text that has all that is asked for takes no helper of another answer.
            left_out = [] if asked <= own else [n for n in shown if n not in own]
            sources = [ast.get_source_segment(answer, shown[n]) for n in left_out]
            rest = "".join(f"{source}\n\n\n" for source in sources)
            cell = f'"""Solved."""\n{rest}{text}'
            found.append(Answer(exercise, name, kind == "right", cell))
    return found


def _changed(answer: str, text: str) -> str:
    """Return what a cell holds, or the answer that readers see with its CHANGES."""
    first = ast.parse(text).body[0]
    if not ast.unparse(first).startswith("CHANGES = "):
        return text
    for old, new in ast.literal_eval(first.value).items():
        assert answer.count(old) == 1, old
        answer = answer.replace(old, new)
    return answer


def _functions(text: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a text by name."""
    body = ast.parse(text).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def _exercise(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


SOLUTIONS, ANSWERS = shown(), others()
CALLS = {name_of(path) for path in (SHOWN / "rpc").glob("*.py")}
ALONE = STARTS_ITS_RANKS | RESTARTS.keys() | CALLS
"""Exercises of which each answer has its own launch: a failed call leaves threads."""
RANKS = {
    "tensor/exercise_two_d": 4,
    "nodes/exercise_cards": 5,
    "rewards/exercise_refresh": 4,
}
"""Where three ranks could not tell right from wrong: a mesh of 1 by 3 is no table, with
two ill cards of three the median is an ill one's, two trainers have equal rows."""
NOT_COMPARED = {
    "less/exercise_shares",
    "rpc/exercise_specimens",
}
"""Exercises whose outputs differ from run to run, so that nbval ignores them."""


def solve(answer: Answer, folder: Path) -> Path:
    """Write the program that a cell with `answer` in it makes; return its path."""
    program = answer.program
    path = program.relative_to(ROOT)
    order = Order.parse(f"{path} --from {path.parent / FRAMES / path.name}")
    # The program is its frame, and what the cell with the stub imports.
    made = whole(order, answer.text, lambda _: program.read_text())
    solved = folder / name_of(program)
    solved.parent.mkdir(parents=True)
    solved.write_text(made.text)
    return smaller(solved, folder / "smaller")


def start(path: Path, ranks: int, **options) -> Run:
    """Run an exercise, or a copy of it that is solved."""
    name = name_of(path)
    if name in STARTS_ITS_RANKS:
        return python(f"{path} --nproc-per-node {ranks}", **options)
    if again := RESTARTS.get(name):
        return torchrun(f"--nproc-per-node {ranks} {again} {path}", **options)
    return launch(ranks, path, **options)


each_solution = pytest.mark.parametrize("solution", SOLUTIONS, ids=str)


def test_every_exercise_has_a_right_answer_and_a_wrong_one():
    folder = ROOT / "ddp_lab"
    paths = [*folder.glob("*/exercise*.py"), *folder.glob("*/puzzle*.py")]
    exercises = {_exercise(path) for path in paths if path.parent != SCRIPTS}
    assert exercises == {answer.exercise for answer in SOLUTIONS}
    assert exercises == {answer.exercise for answer in ANSWERS if not answer.is_right}


def test_notebooks_show_that_unsolved_is_not_yet():
    """So `make test` sees it there, and test_unsolved_is_not_yet is for the rest."""
    exercises = {answer.exercise for answer in SOLUTIONS}
    unsolved = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            compared = "nbval-ignore-output" not in cell["metadata"].get("tags", [])
            if compared and "not yet" in json.dumps(cell.get("outputs", [])).lower():
                source = "".join(cell["source"])
                unsolved |= {exercise for exercise in exercises if exercise in source}
    assert unsolved == exercises - NOT_COMPARED


@pytest.mark.parametrize(
    "solution",
    [
        pytest.param(each, marks=[] if each.exercise in NOT_COMPARED else [FULL])
        for each in SOLUTIONS
    ],
    ids=str,
)
def test_unsolved_is_not_yet(solution):
    run = start(solution.program, 2)
    assert run["solved"] == [False, False]
    assert all("not yet" in "\n".join(lines) for lines in run.lines)


@each_solution
@FULL
@pytest.mark.parametrize("ranks", [2, 4])  # on three it is one of the right answers
def test_the_solution_is_right(solution, ranks, tmp_path):
    run = start(solve(solution, tmp_path), ranks)
    assert run["solved"] == [True] * ranks


def wrong(exercise: str) -> list[Answer]:
    """Return the wrong answers to an exercise."""
    return [a for a in ANSWERS if a.exercise == exercise and not a.is_right]


@each_solution
def test_the_answer_passes_and_a_wrong_one_does_not(solution, tmp_path):
    judge(wrong(solution.exercise)[:1], [solution], tmp_path)


@FULL
@each_solution
def test_further_right_answers_pass_and_no_wrong_one_does(solution, tmp_path):
    further = [a for a in ANSWERS if a.exercise == solution.exercise and a.is_right]
    judge(wrong(solution.exercise)[1:], [solution, *further], tmp_path)


def judge(wrong: list[Answer], right: list[Answer], folder: Path) -> None:
    """Let three ranks run wrong answers to an exercise, and then right ones."""
    # Wrong ones come first: ranks that one of them has damaged would refuse the others.
    paths = {a: solve(a, folder / str(turn)) for turn, a in enumerate(wrong + right)}
    if name_of(right[0].program) in ALONE:
        passed = [answer for answer, path in paths.items() if passes(path)]
    else:
        ranks, good = RANKS.get(right[0].exercise, 3), [paths[each] for each in right]
        ended, printed = tell_apart(ranks, [paths[each] for each in wrong], good)
        passed = [answer for answer, path in paths.items() if not ended[path]]
        assert "not yet" not in printed
        # A number that fits three ranks only; readers' cells run what is right on two.
        if again := [paths[each] for each in passed if each in wrong]:
            assert runs_twice(right[0].exercise), again
            ended, _ = tell_apart(2, again, good)
            passed = [each for each in passed if not ended[paths[each]]]
    assert not [each.name for each in passed if each in wrong]
    assert not [str(each) for each in right if each not in passed]


def runs_twice(exercise: str) -> bool:
    """Return whether a reader's cell runs an answer on a second number of ranks."""
    texts = (path.read_text() for path in (ROOT / "notebooks").glob("*.ipynb"))
    launch = re.compile(rf"again = %torchrun .*/{exercise}\.py")
    return "/puzzle_" in exercise or any(map(launch.search, texts))


def passes(path: Path) -> bool:
    """Return whether three ranks find an answer right; it is the only one they see."""
    try:
        run = start(path, 3)
    except RunFailed as error:
        print(error)  # for whoever wonders why a right one has failed
        return False
    return run["solved"] == [True] * 3


def test_the_shares_are_right_on_two_nodes(tmp_path):
    (answer,) = (a for a in SOLUTIONS if a.exercise == "less/exercise_shares")
    path = solve(answer, tmp_path)
    run = torchrun(f"--nnodes 2 --nproc-per-node 2 {path}")
    assert run["share"] == [0.5] * 4

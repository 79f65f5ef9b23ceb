"""Hints come one by one, an answer only if asked for, and each exercise has both."""

import ast
import builtins
import re
from types import SimpleNamespace

import pytest
from conftest import SCRIPTS, name_of

from ddp_lab import ROOT
from ddp_lab.kit.cell import hints

ANSWERS = sorted(
    path
    for path in (ROOT / "answers").glob("*/*.py")
    if path.parent.name != SCRIPTS.name  # a whole script: see test_script.py
)
NOT_YET = re.compile(r"your (code|verdicts) here|your code instead|NotImplementedError")

ANSWER = '''"""Hints for ddp_lab/p2p/apples.py, and an answer.

1. How many apples
   are there?
2. Count them.
"""


def count(apples):
    total = 0
    for _ in apples:
        total += 1
    return total


def price(apples):
    return 3 * count(apples)
'''
PROGRAM = '''"""Exercise: count apples."""

LIMIT = 4


def count(
    apples,
):
    """Return how many there are.

    Which is not known beforehand.
    """
    return None  # your code here


@decorated
def price(apples):
    """Return their price."""
    return 3 * count(apples)


class Apple:
    """One of them."""


# --- the same in every program ---


def process_group():
    pass
'''


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Return the cells that a kernel has run; work in a folder with two exercises."""
    for place, text in (("answers", ANSWER), ("ddp_lab", PROGRAM)):
        (tmp_path / place / "p2p").mkdir(parents=True)
        (tmp_path / place / "p2p" / "apples.py").write_text(text)
    pears = ANSWER.replace("apples", "pears")
    (tmp_path / "answers" / "p2p" / "pears.py").write_text(pears)
    run: list[str] = []
    shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=run))
    monkeypatch.setattr(hints, "get_ipython", lambda: shell)
    monkeypatch.setattr(hints, "ANSWERS", tmp_path / "answers")
    monkeypatch.setattr(hints, "given", {})
    monkeypatch.chdir(tmp_path)
    return run


@pytest.fixture
def said(capsys):
    """Return a function that calls another one, and returns what that prints."""

    def call(function, *args) -> str:
        function(*args)
        return capsys.readouterr().out

    return call


@pytest.fixture
def reply(monkeypatch):
    """Return a function that says what will be replied to `input`."""

    def will(text: str) -> None:
        monkeypatch.setattr(builtins, "input", lambda prompt: text)

    return will


# --- hints ---


def test_hints_come_in_order_and_then_that_was_the_last(cells, said):
    cells.append("%%writefile ddp_lab/p2p/apples.py\n...")
    assert said(hints.hint) == "p2p/apples, hint 1 of 2: How many apples are there?\n"
    assert said(hints.hint) == "p2p/apples, hint 2 of 2: Count them.\n"
    for _ in range(2):
        assert "hint 2 the last one" in said(hints.hint)


def test_the_exercise_that_was_launched_last_is_meant(cells, said):
    cells.append("%%writefile ddp_lab/p2p/pears.py\n...")
    cells.append("exercise = %torchrun --nproc-per-node 2 ddp_lab/p2p/apples.py")
    cells.append("run = %torchrun --nproc-per-node 2 ddp_lab/p2p/ring.py")  # none
    assert said(hints.hint).startswith("p2p/apples, hint 1")
    cells.append("%torchrun ddp_lab/p2p/pears.py")
    assert said(hints.hint).startswith("p2p/pears, hint 1")


def test_who_tries_again_is_not_told_the_same_again(cells, said):
    for number in (1, 2):
        cells.append("%torchrun ddp_lab/p2p/apples.py")
        assert said(hints.hint).startswith(f"p2p/apples, hint {number}")
        assert said(hints.hint, "p2p/pears").startswith(f"p2p/pears, hint {number}")


def test_a_number_asks_for_that_hint(cells, said):
    cells.append("%torchrun ddp_lab/p2p/apples.py")
    for number, hint in ((2, "Count them."), (1, "How many apples are there?")):
        told = f"p2p/apples, hint {number} of 2: {hint}\n"
        assert said(hints.hint, number) == told
    for number in (3, 0, -1):
        assert "hint 2 the last one" in said(hints.hint, number)
    assert said(hints.hint).startswith("p2p/apples, hint 2")
    assert "There is no exercise 2" in said(hints.solution, 2)


@pytest.mark.parametrize("name", ["p2p/apples", "ddp_lab/p2p/apples.py"])
def test_an_exercise_can_be_named(name, cells, said):
    cells.append("%torchrun ddp_lab/p2p/pears.py")
    assert said(hints.hint, name).startswith("p2p/apples, hint 1")


@pytest.mark.parametrize("ask", [hints.hint, hints.solution])
def test_without_an_exercise_there_is_a_sentence(ask, cells, said):
    assert "Run the two cells of an exercise first" in said(ask)
    assert "There is no exercise p2p/plums" in said(ask, "p2p/plums")


@pytest.mark.parametrize("ask", [hints.hint, hints.solution])
def test_a_course_may_keep_them(ask, cells, said, tmp_path, monkeypatch):
    cells.append("%torchrun ddp_lab/p2p/apples.py")
    monkeypatch.setattr(hints, "ANSWERS", tmp_path / "none")
    assert "kept by your course" in said(ask) and "kept by" in said(ask, "p2p/apples")


# --- solutions ---


@pytest.mark.parametrize("text", ["", "n", "no", "what?"])
def test_it_is_not_shown_unless_the_reader_says_yes(text, cells, said, reply):
    cells.append("%torchrun ddp_lab/p2p/apples.py")
    reply(text)
    assert said(hints.solution) == "Not shown.\n"


@pytest.mark.parametrize("text", ["y", "Yes "])
def test_the_difference_is_that_of_the_functions(text, cells, said, reply):
    cells.append("%torchrun ddp_lab/p2p/apples.py")
    reply(text)
    first, second, *lines = said(hints.solution).splitlines()
    assert first.split() == ["---", "ddp_lab/p2p/apples.py"]
    assert second.split() == ["+++", "answers/p2p/apples.py"]
    kept = [line for line in lines if line.strip() and line[0] == " "]
    assert kept == [" def price(apples):", "     return 3 * count(apples)"]
    changed = [line for line in lines if line[:1] in ("+", "-")]
    assert changed == [
        "-def count(",
        "-    apples,",
        "-):",
        "-    return None  # your code here",
        "+def count(apples):",
        "+    total = 0",
        "+    for _ in apples:",
        "+        total += 1",
        "+    return total",
    ]


def test_a_program_need_not_be_valid_python(cells, said, reply, tmp_path):
    cells.append("%torchrun ddp_lab/p2p/apples.py")
    unfinished = PROGRAM.replace("return None", "for apple in (")
    (tmp_path / "ddp_lab" / "p2p" / "apples.py").write_text(unfinished)
    reply("y")
    shown = said(hints.solution)
    assert "-    for apple in (" in shown and "+    return total" in shown


def test_a_program_need_not_be_there(cells, said, reply, tmp_path):
    (tmp_path / "ddp_lab" / "p2p" / "apples.py").unlink()
    reply("y")
    assert "+    return total" in said(hints.solution, "p2p/apples")


def test_who_has_the_same_is_told_so(cells, said, reply, tmp_path):
    (tmp_path / "ddp_lab" / "p2p" / "apples.py").write_text(ANSWER)
    reply("y")
    assert said(hints.solution, "p2p/apples") == "Your answer is the same.\n"


@pytest.mark.parametrize("error", [EOFError, hints.StdinNotImplementedError])
def test_where_nothing_can_reply_there_is_a_sentence(error, cells, said, monkeypatch):
    def refuse(prompt):
        raise error

    monkeypatch.setattr(builtins, "input", refuse)
    assert "asks before it shows" in said(hints.solution, "p2p/apples")


# --- what is known of each exercise ---


def functions(text: str) -> dict[str, ast.FunctionDef]:
    nodes = ast.parse(text).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("answer", ANSWERS, ids=name_of)
def test_it_has_hints_and_the_functions_to_write(answer):
    text = answer.read_text()
    program = (ROOT / "ddp_lab" / name_of(answer)).read_text()
    first, *rest = ast.get_docstring(ast.parse(text)).splitlines()
    assert first == f"Hints for ddp_lab/{name_of(answer)}, and an answer."
    numbers = re.findall(r"^(\d)\. ", "\n".join(rest), re.M)
    assert numbers in [["1"], ["1", "2"], ["1", "2", "3"]]
    assert len(numbers) == len(hints.hints_in(text))

    written, asked = functions(text), functions(program)
    for name, function in written.items():
        assert ast.unparse(function.args) == ast.unparse(asked[name].args)
    stubs = {
        name
        for name, node in asked.items()
        if NOT_YET.search(ast.get_source_segment(program, node)) and name != "main"
    }
    assert stubs <= {*written}


@pytest.mark.parametrize("answer", ANSWERS, ids=name_of)
def test_what_is_compared_is_what_is_to_write(answer):
    text = answer.read_text()
    program = (ROOT / "ddp_lab" / name_of(answer)).read_text()
    names = [*functions(text)]
    for source in (text, program):
        found = functions(hints.functions(source, names))
        assert [*found] == names and not any(map(ast.get_docstring, found.values()))
        for name, function in found.items():
            body = functions(source)[name].body
            body = body[1:] if ast.get_docstring(functions(source)[name]) else body
            assert list(map(ast.dump, function.body)) == list(map(ast.dump, body))

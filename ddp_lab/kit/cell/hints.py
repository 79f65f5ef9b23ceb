"""Hints for an exercise, one at a time, and an answer beside the reader's own.

What is known of ddp_lab/SUBJECT/NAME.py is in answers/SUBJECT/NAME.py: numbered hints
in its docstring, below it the functions that answer the exercise.
"""

import ast
import re
import textwrap
from pathlib import Path

from IPython import get_ipython
from IPython.core.error import StdinNotImplementedError

from ddp_lab import ROOT
from ddp_lab.kit.cell import variants

ANSWERS = ROOT / "answers"
PROGRAM = re.compile(r"\bddp_lab/(\w+/\w+)\.py")
NUMBER = re.compile(r"^\d\. ", re.M)
DOCSTRING = re.compile(r'(:\n)\s+r?""".*?"""\n', re.S)

given: dict[str, int] = {}
"""How many of its hints an exercise has given in this kernel."""


def hint(which: str | int = "") -> None:
    """Print the next hint for an exercise, or the one of a number: `hint(2)`.

    By default for the exercise that a cell of this kernel has written or launched last;
    others are called SUBJECT/NAME, as their files in ddp_lab.
    """
    number, exercise = (which, "") if isinstance(which, int) else (None, which)
    if not (name := _chosen(exercise)):
        return
    hints = hints_in(_answer(name))
    number = given.get(name, 0) + 1 if number is None else number
    if not 0 < number <= len(hints):
        ends = f"hint 1 is the first one and hint {len(hints)} the last one"
        print(f"{name}: {ends}; solution() shows an answer.")
        return
    given[name] = number
    text = f"{name}, hint {number} of {len(hints)}: {hints[number - 1]}"
    print(textwrap.fill(text, 88))


def solution(exercise: str = "") -> None:
    """Ask, then show how an answer differs from what the reader has written."""
    if not (name := _chosen(exercise)):
        return
    program = Path("ddp_lab", f"{name}.py")
    try:
        reply = input(f"An answer to {program}: show it? [y/N] ")
    except (StdinNotImplementedError, EOFError):
        print("solution() asks before it shows an answer, and nothing here can reply.")
        return
    if reply.strip().lower() not in ("y", "yes"):
        print("Not shown.")
        return
    answer = _answer(name)
    names = [node.name for node in ast.parse(answer).body if hasattr(node, "name")]
    written = program.read_text() if program.exists() else ""
    yours, right = functions(written, names), functions(answer, names)
    if yours == right:
        print("Your answer is the same.")
    else:
        whole = len(right.splitlines())
        variants.show(program, yours, Path("answers", f"{name}.py"), right, whole)


def hints_in(answer: str) -> list[str]:
    """Return the hints in the docstring of a file of answers, in their order."""
    _, *hints = NUMBER.split(ast.get_docstring(ast.parse(answer)) or "")
    return [" ".join(each.split()) for each in hints]


def functions(text: str, names: list[str]) -> str:
    """Return these functions out of a program, without their docstrings.

    What a reader is just writing may be no valid Python, so it is not parsed.
    """
    parts = []
    for name in names:
        end = r"(?=^[^\s)]|\Z)"  # the next line that is not indented
        function = re.search(rf"^def {name}\b.*?{end}", text, re.M | re.S)
        parts += [DOCSTRING.sub(r"\1", function[0], 1).rstrip()] if function else []
    return "\n\n\n".join(parts) + "\n"


def exercises(text: str) -> list[str]:
    """Return the exercises that a text names, and of which there are answers."""
    known = PROGRAM.findall(text)
    return [name for name in known if (ANSWERS / f"{name}.py").is_file()]


def _answer(name: str) -> str:
    return (ANSWERS / f"{name}.py").read_text()


def _chosen(exercise: str) -> str:
    """Return which exercise is meant; if there is none, say so and return ""."""
    shell = get_ipython()
    cells = shell.history_manager.input_hist_raw if shell else []
    asked = str(exercise).removeprefix("ddp_lab/").removesuffix(".py")
    if names := exercises(f"ddp_lab/{asked}.py" if asked else "\n".join(cells)):
        return names[-1]
    if not ANSWERS.is_dir():
        print("The hints and the answers are kept by your course.")
    elif asked:
        print(f"There is no exercise {asked}; a name is SUBJECT/NAME, as of a file.")
    else:
        print("Run the two cells of an exercise first: hint() is about the last one.")
    return ""

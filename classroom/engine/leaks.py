"""Search files for what no student may have: solutions, hidden cases and mistakes."""

import ast
import functools
import importlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from classroom.engine.assignment import names, notebook
from ddp_lab import ROOT
from tools import notebooks

REGION = r"^ *### BEGIN {0}\n(.*?)^ *### END {0}\n?"
SOLUTION = re.compile(REGION.format("SOLUTION"), re.M | re.S)
HIDDEN = re.compile(REGION.format("HIDDEN TESTS"), re.M | re.S)
MARK = re.compile("### BEGIN (SOLUTION|HIDDEN TESTS)")
ANSWERS, OTHERS = ROOT / "answers", ROOT / "tests" / "answers"
"""Where the lessons' exercises are solved, and solved otherwise: a cell for each."""
TELLING_LINE = 12  # characters of a line that tells something
TELLING_LINES = 2  # lines of one answer, where it has as many that are its own
TELLING_ALONE = 40  # characters of a line that is enough by itself


@dataclass(frozen=True)
class Secret:
    """What no student may have: lines of an answer, or a case in all its spellings."""

    name: str
    lines: frozenset[str] = frozenset()
    """But for those that lessons and starters have as well."""
    spellings: tuple[str, ...] = ()
    """Without spaces."""

    def is_in(self, lines: set[str], squeezed: str) -> bool:
        """Tell whether a file with these lines, and this text, gives it away."""
        if found := self.lines & lines:
            enough = len(found) >= min(TELLING_LINES, len(self.lines))
            if enough or any(len(line) >= TELLING_ALONE for line in found):
                return True
        return any(map(squeezed.__contains__, self.spellings))


def leaks(folder: Path, answers: bool = False) -> list[str]:
    """Return a line for each file in `folder` and each secret that it holds.

    Args:
        folder: what students get.
        answers: whether they get the answers to the lessons' exercises.
    """
    known = secrets(answers)
    every = frozenset().union(*(secret.lines for secret in known))
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        where, text = path.relative_to(folder), _text(path)
        if text is None:
            found.append(f"{where}: no text, so it cannot be searched")
            continue
        if MARK.search(text):
            found.append(f"{where}: a mark of the source notebook")
        lines, squeezed = _lines(text) & every, "".join(text.split())
        found += [f"{where}: {one.name}" for one in known if one.is_in(lines, squeezed)]
    return found


def _text(path: Path) -> str | None:
    """Return what a file says; None if it is no text, as an archive is none."""
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if path.suffix in (".ipynb", ".json"):
        with suppress(ValueError):  # as JSON with comments is
            text = "\n".join([text, *_strings(json.loads(text))])
    return None if "\0" in text else text


def _strings(value: object) -> Iterator[str]:
    """Yield every text in a JSON value: sources, outputs, metadata."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        yield "".join(value)
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


# --- secrets ---


@functools.cache
def secrets(answers: bool = False) -> list[Secret]:
    """Return all solutions, hidden cases and mistakes, those of the lessons too.

    Args:
        answers: whether students get the answers to the lessons' exercises, so that
            none of their lines is a secret.
    """
    public = {*_of_lessons()}
    known: list[tuple[str, set[str]]] = []
    cases: list[Secret] = []
    for name in names():
        for cell in notebooks.read(notebook("source", name)).cells:
            public |= _lines(HIDDEN.sub("", SOLUTION.sub("", cell.source)))
            where = f"{name}, {cell.metadata.get('nbgrader', {}).get('grade_id')}"
            for text in SOLUTION.findall(cell.source):
                known.append((f"{where}: a solution", _lines(text)))
            for text in HIDDEN.findall(cell.source):
                cases += _cases(where, text)
        module = importlib.import_module(f"classroom.assignments.{name}.mistakes")
        for mistake in module.MISTAKES:
            text = "\n".join(new for _, new in mistake.changes)
            known.append((f"{name}: the mistake {mistake.name!r}", _lines(text)))
    for path in ANSWERS.rglob("*.py"):
        known.append((str(path.relative_to(ROOT)), _lines(path.read_text())))
        if answers:
            public |= _lines(path.read_text())
    for path in OTHERS.rglob("*.py"):
        for cell in path.read_text().split("# %% ")[1:]:
            where = f"{path.relative_to(ROOT)}, {cell.splitlines()[0]}"
            if cell.startswith("wrong"):  # a right one may look like the lab's own code
                known.append((where, _lines(cell)))
    own = [Secret(name, frozenset(lines - public)) for name, lines in known]
    return [secret for secret in own if secret.lines] + cases


@functools.cache
def _of_lessons() -> frozenset[str]:
    """Return the lines of the lessons, of the programs that they write, of frames."""
    frames = (ROOT / "ddp_lab").glob("*/frames/*.py")
    lines = set[str]().union(*(_lines(frame.read_text()) for frame in frames))
    for lesson in notebooks.lessons():
        texts = [cell.source for cell in notebooks.read(lesson).cells]
        texts += [text for _, text in notebooks.programs(lesson)]
        lines.update(*map(_lines, texts))
    return frozenset(lines)


def _cases(where: str, text: str) -> Iterator[Secret]:
    """Yield the hidden cases in a part of a call of `check`."""
    text = f"check({text})"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.keywords:
            source = ast.get_source_segment(text, node) or ""
            case = eval(source)
            spellings = source, ast.unparse(node), repr(case), json.dumps(case)
            squeezed = tuple("".join(one.split()) for one in spellings)
            yield Secret(f"{where}: the hidden case {case}", spellings=squeezed)


def _lines(text: str) -> set[str]:
    """Return the lines of a text that tell something, without comments and spaces, nor
    the marks of a difference.
    """
    lines = (re.sub(r"\s+#.*", "", line).strip("+- ") for line in text.splitlines())
    return {line for line in lines if len(line) >= TELLING_LINE and line[0] != "#"}

"""Search files for what no student may have: solutions, and hidden cases."""

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from classroom.engine.assignment import names, notebook
from ddp_lab import ROOT
from tools import notebooks

REGION = r"^ *### BEGIN {0}\n(.*?)^ *### END {0}\n?"
SOLUTION = re.compile(REGION.format("SOLUTION"), re.M | re.S)
HIDDEN = re.compile(REGION.format("HIDDEN TESTS"), re.M | re.S)
MARK = re.compile("### BEGIN (SOLUTION|HIDDEN TESTS)")
TELLING_LINE = 12  # characters of a line that tells something
TELLING_LINES = 2  # lines of one solution, where it has as many that are its own


def leaks(folder: Path) -> list[str]:
    """Return a line for each file in `folder` and each secret that it holds."""
    lines, spellings = solutions(), cases()
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        where, text = path.relative_to(folder), _text(path)
        if text is None:
            found.append(f"{where}: no text, so it cannot be searched")
            continue
        if MARK.search(text):
            found.append(f"{where}: a mark of the source notebook")
        told, squeezed = _lines(text), "".join(text.split())
        for name, own in lines.items():
            if len(own & told) >= min(TELLING_LINES, len(own)):
                found.append(f"{where}: {name}")
        for name, spelled in spellings.items():
            if any(map(squeezed.__contains__, spelled)):
                found.append(f"{where}: {name}")
    return found


def _text(path: Path) -> str | None:
    """Return what a file says, as it is and as JSON would be read; None if it is no
    text, as an archive is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    read = text.replace("\\n", "\n").replace('\\"', '"')
    return None if "\0" in text else f"{text}\n{read}"


# --- secrets ---


@functools.cache
def solutions() -> dict[str, frozenset[str]]:
    """Return by name the lines of each solution that neither a lesson nor what
    students get of an assignment's notebook has as well.
    """
    public = {*_of_lessons()}
    known: dict[str, set[str]] = {}
    for where, source in _cells():
        public |= _lines(HIDDEN.sub("", SOLUTION.sub("", source)))
        for text in SOLUTION.findall(source):
            known.setdefault(f"{where}: a solution", set()).update(_lines(text))
    own = {name: frozenset(lines - public) for name, lines in known.items()}
    return {name: lines for name, lines in own.items() if lines}


@functools.cache
def cases() -> dict[str, tuple[str, ...]]:
    """Return by name each hidden case in its spellings, without spaces."""
    found = {}
    for where, source in _cells():
        for text in HIDDEN.findall(source):
            call = f"check({text})"
            for node in ast.walk(ast.parse(call)):
                if isinstance(node, ast.Call) and node.keywords:
                    written = ast.get_source_segment(call, node) or ""
                    case = eval(written)
                    spelled = written, ast.unparse(node), repr(case), json.dumps(case)
                    name = f"{where}: the hidden case {case}"
                    found[name] = tuple("".join(one.split()) for one in spelled)
    return found


def _cells() -> Iterator[tuple[str, str]]:
    """Yield what names a cell of an assignment, and its source; of all there are."""
    for name in names():
        for cell in notebooks.read(notebook("source", name)).cells:
            known = cell.metadata.get("nbgrader", {})
            yield f"{name}, {known.get('grade_id')}", cell.source


def _of_lessons() -> set[str]:
    """Return the lines of the lessons, of the programs that they write, of frames, and
    of the answers to their exercises, which a course may give out.
    """
    files = *ROOT.glob("ddp_lab/*/frames/*.py"), *ROOT.glob("answers/*/*.py")
    lines = set[str]().union(*(_lines(file.read_text()) for file in files))
    for lesson in notebooks.lessons():
        texts = [cell.source for cell in notebooks.read(lesson).cells]
        texts += [text for _, text in notebooks.programs(lesson)]
        lines.update(*map(_lines, texts))
    return lines


def _lines(text: str) -> set[str]:
    """Return the lines of a text that tell something, without comments and spaces, nor
    the marks of a difference and of JSON.
    """
    lines = (re.sub(r"\s+#.*", "", line).strip('+- ",') for line in text.splitlines())
    return {line for line in lines if len(line) >= TELLING_LINE and line[0] != "#"}

"""An index of what the course calls in torch, computed from its programs."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.cell import end
from tools import course, notebooks

PLACES = (
    "torch.amp.",
    "torch.autograd.graph.",
    "torch.distributed.",
    "torch.multiprocessing.",
    "torch.nn.parallel.",
    "torch.utils.checkpoint.",
    "torch.utils.data.",
)
"""Where those names live that the course is about."""
OLD_PAGES = course.PATH / course.file(course.NAMED["what_old_pages_say"])
SEARCH = "https://docs.pytorch.org/docs/stable/search.html?q="


def imported(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name stands for: {"dist": "torch.distributed"}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def called(text: str) -> set[str]:
    """Return the full names that a program uses, out of `PLACES`."""
    tree = ast.parse(text)
    names, found = imported(tree), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            if first in names and all(part.isidentifier() for part in rest):
                found.add(".".join([names[first], *rest]))
    shorter = {name.rpartition(".")[0] for name in found}  # dist, of dist.send
    return {
        name for name in found - shorter if name.startswith(PLACES) and "._" not in name
    }


def lessons_by_name() -> dict[str, dict[str, Path]]:
    """Return, for each name, the lessons that use it, and the first program there."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for each in course.LESSONS:
        for path, text in notebooks.programs(course.PATH / course.file(each)):
            # The shared end is a lesson once, in the first one.
            own = text if each is course.LESSONS[0] else text.partition(end.RULE)[0]
            for name in called(own):
                found[name].setdefault(each.name, path)
    return found


def old_rows() -> dict[int, set[str]]:
    """Return the words of code in each row of the lesson on old pages."""
    found: dict[int, set[str]] = defaultdict(set)
    for cell in notebooks.read(OLD_PAGES).cells:
        for row, rest in re.findall(r"^\| (\d+) \|(.*)", cell.source, re.M):
            code = " ".join(re.findall(r"`([^`]*)`", rest))
            found[int(row)] |= {*re.findall(r"\w+", code)}
    return found


def index() -> str:
    """Return the index as a list in Markdown."""
    lines, rows = [], old_rows()
    for name, lessons in sorted(lessons_by_name().items(), key=by_last_part):
        module, _, last = name.rpartition(".")
        shows = "lessons " if len(lessons) > 1 else "lesson "
        shows += ", ".join(f"{lesson(key)} {page(lessons[key])}" for key in lessons)
        old = [str(row) for row in sorted(rows) if last in rows[row]]
        if old:
            many = "rows" if len(old) > 1 else "row"
            shows += f"; [old pages](../notebooks/{OLD_PAGES.name}), {many} "
            shows += ", ".join(old)
        lines.append(f"- [`{last}`]({SEARCH}{last}) of {module}: {shows}")
    return "\n".join(lines)


def lesson(name: str) -> str:
    """Return a link to a lesson: its number."""
    return f"[{course.NUMBERS[name]}](../notebooks/{course.file(course.NAMED[name])})"


def page(program: Path) -> str:
    """Return a link to a program's page; see lessons.py."""
    place = program.relative_to(ROOT).with_suffix(".html")
    return f'(<a href="../{place}">{program.stem}</a>)'


def by_last_part(item: tuple[str, object]) -> tuple[str, str]:
    """Sort by what one looks for: all_reduce, not torch.distributed."""
    return item[0].rpartition(".")[2].lower(), item[0]

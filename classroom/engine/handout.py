"""Write what students get: the lessons, and assignments without their answers.

A list says what goes in (see `contents`); what it does not name stays here. Before it
is packed, every file is searched for what no student may have (see `leaks`).
"""

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from classroom.engine.assignment import COURSE, LAB, load, notebook
from classroom.engine.leaks import leaks
from classroom.engine.modules import imported, modules
from classroom.engine.rig import beside
from ddp_lab import ROOT
from tools import notebooks

HANDOUT = (ROOT / "build" if COURSE == LAB else COURSE) / "handout"
NAME = "ddp-lab"
"""Of the folder that students get."""
FILES = """
    LICENSE CITATION.cff TROUBLESHOOTING.md Makefile requirements.txt pyproject.toml
    .gitignore .devcontainer/devcontainer.json data/README.md figs/*.svg
    figs/steps/*.html ddp_lab/__init__.py ddp_lab/data.py ddp_lab/gpt.py
    ddp_lab/gpt.txt ddp_lab/llama.py
    ddp_lab/kit/**/*.py ddp_lab/*/*.sbatch
    whichrank/pyproject.toml whichrank/src/**/*.py
    whichrank/src/whichrank/py.typed
    ddp_lab/*/frames/*.py ddp_lab/profiling/verdict.py bench/programs/*.py recorded/*/*
"""
ANSWERS = "answers/*/*.py"
"""Hints and answers of the lessons' exercises, for a course that gives them out."""
COMMANDS = "tools.work", "tools.lab", "tools.notebooks", "bench.__main__"
"""What the learner's targets of the Makefile call."""
# The first table of an assignment's notebook.
HEAD = re.compile(
    r"^# (?:Assignment )?(.+)\n(?:.*\n)*?\| ([^|]+) \| \d \| .* \| (.+) \|$", re.M
)


def hand_out(assignments: list[str], answers: bool = False) -> Path:
    """Write the students' folder and a zip of it; return the zip.

    Args:
        assignments: which of those that have been released.
        answers: whether students get the hints and answers of the lessons' exercises.

    Raises:
        SystemExit: if a file holds what no student may have; then nothing is left.
    """
    shutil.rmtree(HANDOUT, ignore_errors=True)
    folder = HANDOUT / NAME
    for name, source in contents(assignments, answers).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    for name, text in documents(assignments).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if found := leaks(folder):
        shutil.rmtree(HANDOUT)
        said = "nothing is handed out, because it would give answers away:"
        sys.exit("\n".join([said, *found]))
    path = HANDOUT / f"{NAME}-students"
    return Path(shutil.make_archive(str(path), "zip", HANDOUT, NAME))


def documents(assignments: list[str]) -> dict[str, str]:
    """Return what is written for students in the place of what instructors read."""
    readme = (ROOT / "README.md").read_text()
    lessons = readme.partition("## The lessons\n\n")[2].partition("\n## ")[0]
    rows = "\n".join(_row(name) for name in assignments)
    texts = {"README.md": lessons, "classroom/README.md": rows}
    for name, table in texts.items():
        text = (LAB / "students" / name).read_text()
        texts[name] = text.replace("TABLE\n", f"{table.rstrip()}\n")
    tool = (ROOT / "whichrank" / "README.md").read_text().partition("## Against")[0]
    texts["whichrank/README.md"] = re.sub(
        r" \(\[.+\]\(bench/.+\)\)|bench/\w+/", "", tool
    )
    return texts


def _row(name: str) -> str:
    first = notebooks.read(notebook("release", name)).cells[0].source
    head = HEAD.search(first)
    title, minutes, before = head.groups() if head else (name, "", "")
    link = f"[{title}](../assignments/{name}/{name}.ipynb)"
    return f"| {link} | {minutes} | {before} |"


# --- what goes in ---


def contents(assignments: Iterable[str], answers: bool = False) -> dict[str, Path]:
    """Return by its path in the students' folder each file that goes into it."""
    patterns = [*FILES.split(), *([ANSWERS] if answers else [])]
    plain = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    found = {str(path.relative_to(ROOT)): path for path in plain}
    listed = (ROOT / "README.md").read_text()
    roots = {*COMMANDS, "classroom.engine.check"}
    for lesson in notebooks.lessons():
        if f"(notebooks/{lesson.name})" in listed:
            found[f"notebooks/{lesson.name}"] = lesson
            roots.update(imported(_code(lesson)))
            for order, _ in notebooks.program_cells(lesson):
                if not Path(order.path).name.startswith(notebooks.STUBS):
                    found[order.path] = ROOT / order.path
    for name in assignments:
        found[f"assignments/{name}/{name}.ipynb"] = notebook("release", name)
        # What `check` imports, and what a run needs beside its harness.
        roots.add(f"classroom.assignments.{name}.criteria")
        for path in beside(load(name)):
            course = LAB if path.is_relative_to(LAB) else COURSE
            found[f"classroom/{path.relative_to(course)}"] = path
    return found | modules(roots)


def _code(path: Path) -> str:
    """Return the code of a notebook's cells, line magics left out."""
    cells = notebooks.read(path).cells
    code = [c.source for c in cells if c.cell_type == "code" and c.source[:1] != "%"]
    return re.sub(r"^(\s*)(?:\w+ = )?[%!].*", r"\1pass", "\n".join(code), flags=re.M)

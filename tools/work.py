"""Give a learner copies of the lessons to work in: python -m tools.work

work/ is the learner's, all else the course's. It has the shape of the repository:
notebooks without outputs, so that no answer is seen too early, and the folder into
which their cells write programs; and the assignments, where the course hands some out.
git ignores it, so a `git pull` has no conflict with what a learner has run or written.
What is there already is never overwritten.
"""

import hashlib
import shutil
from pathlib import Path

from nbformat import NotebookNode

from ddp_lab import ROOT
from tools import notebooks

WORK = ROOT / "work"
ASSIGNMENTS = ROOT / "assignments"
"""Where students get them; the repository has none."""
# What the lessons look at besides; seen through a link, it is never out of date.
LINKED = ("classroom", "data", "figs", "README.md", "TROUBLESHOOTING.md")
SOURCE = "ddp_lab_source"
"""In a copy's metadata: the digest of the lesson that it was made of."""


def blank(lesson: NotebookNode) -> NotebookNode:
    """Return `lesson` as if nobody had run it."""
    lesson.metadata[SOURCE] = digest(lesson)
    for cell in lesson.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return lesson


def digest(lesson: NotebookNode) -> str:
    """Return a digest of what the cells of `lesson` say, outputs left out."""
    text = "\0".join(cell.source for cell in lesson.cells)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make(work: Path = WORK) -> list[str]:
    """Put into `work` what is not there yet; return what a learner has to know."""
    work.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        link = work / name
        if not link.is_symlink():
            link.symlink_to(Path("..", name))
    lessons = notebooks.lessons()
    assignments = sorted(ASSIGNMENTS.glob("*/*.ipynb"))
    said = [_copy(path, work, f"notebooks/{path.name}") for path in lessons]
    said += [
        _copy(path, work, f"assignments/{path.stem}/{path.name}")
        for path in assignments
    ]
    for path in lessons:
        for program, _ in notebooks.programs(path):
            its_copy = work / program.relative_to(ROOT)
            if not its_copy.exists():
                its_copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(program, its_copy)
    return [words for words in said if words]


def _copy(path: Path, work: Path, name: str) -> str:
    """Put a blank copy of a notebook into `work`; return what its owner has to know."""
    copy, original = work / name, notebooks.read(path)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(notebooks.dumps(blank(original)))
    elif notebooks.read(copy).metadata.get(SOURCE) != digest(original):
        where = f"{work.name}/{name}"
        return (
            f"{path.stem} has a newer version; rename {where}, or delete it, and "
            "`make open` gives you a fresh one beside your work"
        )
    return ""


if __name__ == "__main__":
    print("work/ is yours: the lessons without their outputs, and the assignments")
    print(*make(), sep="\n")

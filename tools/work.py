"""Give a learner copies of the lessons to work in: python -m tools.work

work/ is the learner's, all else the course's. It has the shape of the repository:
notebooks without outputs, so that no answer is seen too early, and the folder into
which their cells write programs; and the assignments, where the course hands some out.
git ignores it, so a `git pull` has no conflict with what a learner has run or written.
What a learner works in is never overwritten; what the lessons link to, drawings and
pages, is the course's, and copied anew each time: JupyterLab serves this folder alone,
and follows no link out of it. A page keeps only the links that lead to something here.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from nbformat import NotebookNode

from ddp_lab import ROOT, from_here
from tools import notebooks

WORK = ROOT / "work"
ASSIGNMENTS = ROOT / "assignments", ROOT / "classroom" / "release"
"""Where students get them, and where `make release` writes them in a clone."""
PAGES = "README.md TROUBLESHOOTING.md ELSEWHERE.md classroom/README.md"
LINKED = (
    "LICENSE figs/*.png figs/*.svg figs/steps/*.html recorded/*/* "
    "ddp_lab/*/frames/*.py ddp_lab/profiling/verdict.py ddp_lab/llama.py"
)
"""What the notebooks and these pages show or link to, or make programs of."""
LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)#]+)[^)]*\)")
SOURCE = "ddp_lab_source"
"""In a copy's metadata: the digest of the lesson that it was made of."""
Put = Callable[[Path, Path], str | None]
"""Given an original and its place in `work`: puts it there, returns what to tell."""


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
    said = []
    for original, name, put in _contents():
        try:
            top = work / Path(name).parts[0]
            if put is _renew and top.is_symlink():  # as earlier editions made them
                top.unlink()
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            said.append(put(original, work / name))
        except OSError as error:  # a folder stands where a file belongs, say
            where = from_here(Path(error.filename or work / name))
            said.append(
                f"cannot write {where} ({error.strerror}): rename what is there"
            )
    return [*dict.fromkeys(words for words in said if words)]


def _contents() -> Iterator[tuple[Path, str, Put]]:
    """Yield each original, where in `work` it belongs, and what puts it there."""
    pages = [(path, name) for name in PAGES.split() if (path := ROOT / name).exists()]
    for path, name in pages:
        yield path, name, _renew
    for pattern in LINKED.split():
        for path in sorted(ROOT.glob(pattern)):
            yield path, str(path.relative_to(ROOT)), _renew
    yield Path("..", "data"), "data", _share
    for path in notebooks.lessons():
        yield path, f"notebooks/{path.name}", _copy
        for program, text in notebooks.programs(path):
            yield program, str(program.relative_to(ROOT)), partial(_keep, text)
    for folder in ASSIGNMENTS:
        for path in sorted(folder.glob("*/*.ipynb")):
            yield path, f"assignments/{path.stem}/{path.name}", _copy
    for path, name in pages:  # last: now all is there that they may lead to
        yield path, name, _cut_links


def _renew(path: Path, copy: Path) -> None:
    """Copy a file of the course over what is there."""
    copy.unlink(missing_ok=True)  # a link is replaced, not what it leads to
    shutil.copyfile(path, copy)


def _cut_links(path: Path, copy: Path) -> None:
    """Leave only the words of a page's links that lead to nothing here."""

    def kept(link: re.Match) -> str:
        return link[0] if (copy.parent / link[2]).exists() else link[1]

    copy.write_text(LINK.sub(kept, copy.read_text()))


def _keep(text: str, _: Path, program: Path) -> None:
    """Write a program unless it is there."""
    if not program.exists():
        program.write_text(text)


def _share(path: Path, link: Path) -> None:
    """Let programs find, and put, data sets where the repository has them."""
    if not (link.exists() or link.is_symlink()):
        link.symlink_to(path)


def _copy(path: Path, copy: Path) -> str | None:
    """Put a blank copy of a notebook into `work`; return what its owner has to know."""
    original = notebooks.read(path)
    if not copy.exists():
        images_inside = notebooks.with_images(blank(original), path.parent)
        # JupyterLab's name of this heading; elsewhere it has no capital letter.
        text = notebooks.dumps(images_inside).replace("#the-lessons", "#The-lessons")
        copy.write_text(text)
        return None
    try:
        if notebooks.read(copy).metadata.get(SOURCE) == digest(original):
            return None
        why = "has a newer version"
    except Exception:  # a folder, or a file that is no notebook
        why = "cannot be read"
    return (
        f"{path.stem} {why}; rename {from_here(copy)}, or delete it, and "
        "`make open` gives you a fresh one beside your work"
    )


if __name__ == "__main__":
    print("work/ is yours: the lessons without their outputs, and the assignments")
    print(*make(), sep="\n")

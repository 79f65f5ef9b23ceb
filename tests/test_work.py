"""A learner's copies: blank, whole, never overwritten, and no matter for git."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("nbformat", reason="tools.work needs Jupyter")

from nbformat.v4 import (  # noqa: E402
    new_code_cell,
    new_markdown_cell,
    new_notebook,
)

from ddp_lab import ROOT, workplace  # noqa: E402
from tools import notebooks, work  # noqa: E402

LESSON = "01_point_to_point.ipynb"
PROGRAM = "ddp_lab/p2p/ring.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a learner's copies, made once: all lessons are read."""
    folder = tmp_path_factory.mktemp("learner") / "work"
    assert work.make(folder) == []
    return folder


@pytest.fixture
def mine(made, tmp_path, monkeypatch):
    """Return the folder with a learner's copies, and go where `make open` is called."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(made, tmp_path / "work", symlinks=True)


@pytest.fixture
def few(monkeypatch):
    """Let the course have three lessons."""
    three = notebooks.lessons()[:3]
    monkeypatch.setattr(notebooks, "lessons", lambda: three)


def test_the_copies_have_no_outputs_and_else_are_the_lessons(mine):
    for path in notebooks.lessons():
        lesson = notebooks.with_images(notebooks.read(path), path.parent)
        copy = notebooks.read(mine / "notebooks" / path.name)
        sources = [c.source.replace("#the-l", "#The-l") for c in lesson.cells]
        assert [cell.source for cell in copy.cells] == sources
        code = [cell for cell in copy.cells if cell.cell_type == "code"]
        assert not any(cell.outputs or cell.execution_count for cell in code)
        assert copy.metadata.kernelspec == lesson.metadata.kernelspec
    assert (mine / PROGRAM).read_bytes() == (ROOT / PROGRAM).read_bytes()


def test_the_cells_of_a_copy_find_what_they_make_programs_of(mine):
    made_of = [
        order.other
        for path in notebooks.lessons()
        for order, _ in notebooks.program_cells(path)
        if order.other
    ]
    assert any("/frames/" in name for name in made_of)
    assert [name for name in made_of if not (mine / name).exists()] == []


def test_what_a_learner_has_written_stays(mine, few):
    for name in (f"notebooks/{LESSON}", PROGRAM):
        (mine / name).write_text((mine / name).read_text() + " ")
    kept = {path: path.read_bytes() for path in mine.rglob("*.[ip]*") if path.is_file()}
    assert work.make(mine) == []
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_newer_lesson_is_told_and_not_imposed(mine, few):
    copy = mine / "notebooks" / LESSON
    old = json.loads(copy.read_text())
    old["metadata"][work.SOURCE] = "another"
    copy.write_text(json.dumps(old))
    (said,) = work.make(mine)
    assert said.startswith("01_point_to_point has a newer version; rename work/noteb")
    assert json.loads(copy.read_text()) == old
    copy.rename(copy.with_name("mine.ipynb"))
    assert work.make(mine) == [] and copy.exists()


def test_the_assignments_that_are_handed_out_are_copied_too(tmp_path, monkeypatch, few):
    handed_out = tmp_path / "assignments" / "ring" / "ring.ipynb"
    handed_out.parent.mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / LESSON, handed_out)
    monkeypatch.setattr(work, "ASSIGNMENTS", [tmp_path / "assignments"])
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "work"
    assert work.make(folder) == []
    copy = folder / "assignments" / "ring" / "ring.ipynb"
    copy.write_text(copy.read_text() + " ")  # what a student has done stays
    assert work.make(folder) == [] and copy.read_text().endswith(" ")
    shutil.copy(ROOT / "notebooks" / "00_start_here.ipynb", handed_out)
    (said,) = work.make(folder)
    assert said.startswith("ring has a newer version; rename work/assignments/ring/r")
    assert workplace(copy.parent) == folder


def test_a_copy_works_in_the_learners_folder_and_a_lesson_in_the_root(mine):
    assert workplace(mine / "notebooks") == mine
    assert workplace(ROOT / "notebooks") == workplace(ROOT) == ROOT
    assert workplace(mine.parent) == ROOT


# What the lessons link to


def links(text: str) -> set[str]:
    """Return the files that a page or the prose of a notebook links to or shows."""
    forms = r"""\]\(([^)#\s]+)|<img[^>]*?\ssrc=["']([^"']+)|^\[[^]]*\]: ([^#\s]+)"""
    found = {"".join(groups) for groups in re.findall(forms, text, re.M)}
    return {link for link in found if not re.match(r"(https?|data):", link)}


def prose(path: Path) -> str:
    """Return the prose of a notebook."""
    return "\n".join(
        c.source for c in notebooks.read(path).cells if c.cell_type != "code"
    )


def test_what_the_lessons_link_to_lies_in_the_folder_that_is_served(mine):
    for path in notebooks.lessons():
        for link in links(prose(path)):
            target = mine / "notebooks" / link
            assert target.is_file() and mine in target.resolve().parents, link
    assert {name.name for name in mine.iterdir() if name.is_symlink()} == {"data"}


def test_pages_keep_the_links_that_lead_somewhere_and_no_others(mine):
    for page in mine.rglob("*.md"):
        for link in links(page.read_text()):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"
    readme = (mine / "README.md").read_text()
    assert len(links(readme)) > len(notebooks.lessons())
    assert "](CONTRIBUTING.md)" not in readme and "CONTRIBUTING.md" in readme


def test_links_of_an_earlier_edition_are_replaced_and_lead_nowhere_astray(mine, few):
    for name in ("figs", "classroom"):
        shutil.rmtree(mine / name)
        (mine / name).symlink_to(ROOT / name)
    (mine / "README.md").unlink()
    (mine / "README.md").symlink_to(ROOT / "README.md")
    theirs = mine.parent / "theirs.md"
    theirs.write_text("kept")
    (mine / "TROUBLESHOOTING.md").unlink()
    (mine / "TROUBLESHOOTING.md").symlink_to(theirs)
    before = (ROOT / "README.md").read_bytes()
    assert work.make(mine) == []
    for name in ("figs/world.svg", "classroom/README.md", "README.md"):
        assert mine in (mine / name).resolve().parents
    assert (ROOT / "README.md").read_bytes() == before
    assert theirs.read_text() == "kept"


def test_what_the_course_has_changed_is_copied_anew_and_files_beside_it_stay(mine, few):
    (mine / "figs" / "world.svg").unlink()  # or a link would be written through
    (mine / "figs" / "world.svg").write_text("of an earlier edition")
    (mine / "figs" / "mine.svg").write_text("drawn by the learner")
    (mine / "classroom" / "notes.md").write_text("by the learner")
    assert work.make(mine) == []
    world = (ROOT / "figs" / "world.svg").read_bytes()
    assert (mine / "figs" / "world.svg").read_bytes() == world
    assert (mine / "figs" / "mine.svg").read_text() == "drawn by the learner"
    assert (mine / "classroom" / "notes.md").read_text() == "by the learner"


def test_data_sets_are_shared_unless_a_learner_has_other_ones(tmp_path, few):
    root = tmp_path / "data"
    root.mkdir()
    work.make(tmp_path / "work")
    (tmp_path / "work" / "data" / "set").write_text("here")
    assert (root / "set").read_text() == "here"
    own = tmp_path / "other" / "data"
    own.mkdir(parents=True)
    (own / "set").write_text("mine")
    assert work.make(own.parent) == [] and (own / "set").read_text() == "mine"


IN_THE_WAY = {  # a folder, where there is no text
    "figs": "a file",
    "README.md": None,
    "classroom/README.md": None,
    "data": "a file",
    PROGRAM: None,
    "notebooks/00_start_here.ipynb": None,
    f"notebooks/{LESSON}": "{",
    "notebooks/02_collectives.ipynb": "[]",
}
TOLD = """
cannot write work/README.md (Is a directory): rename what is there
cannot write work/classroom/README.md (Is a directory): rename what is there
cannot write work/figs (File exists): rename what is there
cannot write work/figs/steps (Not a directory): rename what is there
00_start_here cannot be read; rename work/notebooks/00_start_here.ipynb, or
01_point_to_point cannot be read; rename work/notebooks/01_point_to_point.ipynb, or
02_collectives cannot be read; rename work/notebooks/02_collectives.ipynb, or
"""


def test_what_is_in_the_way_is_told_in_a_sentence_and_left_alone(mine, few):
    for name, text in IN_THE_WAY.items():
        place = mine / name
        shutil.rmtree(place) if name == "figs" else place.unlink()
        place.mkdir() if text is None else place.write_text(text)
    for words, told in zip(work.make(mine), TOLD.strip().splitlines(), strict=True):
        assert words.startswith(told)
    for name, text in IN_THE_WAY.items():
        place = mine / name
        assert place.is_dir() if text is None else place.read_text() == text


# Images


FORMS = """
![two ranks [0, 1]](../figs/world.svg)
<img src="../figs/world.svg" alt="two ranks" style="width: 9em">
<img alt='two ranks' src='../figs/lesson.png'>
![elsewhere](https://example.org/a.svg) ![gone](../figs/no.svg)
[a link](../figs/world.svg)
"""


def test_an_image_is_put_inside_in_each_form_and_nothing_else_is():
    cells = [new_markdown_cell(FORMS), new_code_cell(FORMS)]
    changed = notebooks.with_images(new_notebook(cells=cells), ROOT / "notebooks")
    assert changed.cells[1].source == FORMS
    lines = changed.cells[0].source.splitlines()
    svg, png = (
        base64.b64encode((ROOT / "figs" / name).read_bytes()).decode()
        for name in ("world.svg", "lesson.png")
    )
    world = f"data:image/svg+xml;base64,{svg}"
    assert lines[1:] == [
        f"![two ranks [0, 1]]({world})",
        f'<img src="{world}" alt="two ranks" style="width: 9em">',
        f"<img alt='two ranks' src='data:image/png;base64,{png}'>",
        *FORMS.splitlines()[4:],
    ]


def test_a_copy_that_is_mailed_alone_shows_its_images_as_a_page(mine, tmp_path):
    for path in (mine / "notebooks").glob("*.ipynb"):
        assert not notebooks.IMAGE.search(prose(path)), path.name
    alone = shutil.copy(mine / "notebooks" / LESSON, tmp_path)
    page, _ = pytest.importorskip("nbconvert").HTMLExporter().from_filename(alone)
    shown = re.findall(r"""<img\b[^>]*?\ssrc=["']([^"']{0,14})""", page)
    assert len(shown) > 2 and {*shown} == {"data:image/svg"}


# The repository


@pytest.mark.processes
def test_a_pull_has_no_conflict_with_what_a_learner_did(tmp_path):
    def git(*words, folder):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", *who, *words]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True)

    course, learner = tmp_path / "course", tmp_path / "learner"
    (course / "ddp_lab" / "p2p").mkdir(parents=True)
    shutil.copy(ROOT / ".gitignore", course)
    shutil.copy(ROOT / PROGRAM, course / PROGRAM)
    git("init", "-q", folder=course)
    git("add", ".", folder=course)
    git("commit", "-qm", "first", folder=course)
    git("clone", "-q", str(course), str(learner), folder=tmp_path)
    (learner / "work" / "ddp_lab" / "p2p").mkdir(parents=True)
    (learner / "work" / PROGRAM).write_text("print('my own ring')\n")
    (course / PROGRAM).write_text("print('a new edition')\n")
    git("commit", "-qam", "second", folder=course)
    git("pull", "-q", "--ff-only", folder=learner)
    assert (learner / PROGRAM).read_text() == "print('a new edition')\n"
    assert (learner / "work" / PROGRAM).read_text() == "print('my own ring')\n"
    assert git("status", "--porcelain", folder=learner).stdout == b""

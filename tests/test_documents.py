"""The documents: one sentence a line, and nothing named that is not there."""

import re
from pathlib import Path

import pytest

pytest.importorskip("nbformat", reason="tools.notebooks needs Jupyter")

from ddp_lab import ROOT  # noqa: E402
from tools import course, notebooks  # noqa: E402
from tools.notebooks import one_sentence_a_line  # noqa: E402

NAMES = [
    "README.md",
    "CONTRIBUTING.md",
    "TROUBLESHOOTING.md",
    "CHANGELOG.md",
    "classroom/README.md",
    "classroom/INSTRUCTORS.md",
    "data/README.md",
    "ELSEWHERE.md",
    "book/tasks.md",
]
# Lessons on what happens, and not on something to do.
UNTASKED = {"start_here", "point_to_point", "the_ward"}
HISTORY = "CHANGELOG.md"  # names what is no longer there
MAKEFILES = [(ROOT / name).read_text() for name in ("Makefile", "authors.mk")]
TARGETS = set(re.findall(r"^([a-z-]+):", "\n".join(MAKEFILES), re.M))
# In front of a name that stands for many, and what comes into being by running the lab.
PLACEHOLDER = re.compile(r"NN|NAME|SUBJECT|STUDENT|/path/|\*|^(train\.py|run\.json)$")
COURSE = r"release|submitted|feedback|grades|exchange|handout|roster\.csv"
MADE = re.compile(rf"~|(build|work|\.venv|(classroom/)?({COURSE}))\b")
FOLDERS = ["bench", "classroom", "ddp_lab", "figs", "notebooks", "tests", "tools"]
HOUSE = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
# A file or folder below may be called by its name alone.
SHORT = {path.name + "/" * path.is_dir() for path in HOUSE}
FILE = r"\.(?:py|md|toml|ipynb|png|svg|txt|cff|yml|json)"

documents = pytest.mark.parametrize("name", NAMES)


def code(text: str) -> list[str]:
    """Return what stands in backquotes and in fenced blocks, a line each."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return [line for block in blocks for line in block.splitlines()] + re.findall(
        r"`([^`\n]+)`", prose
    )


def paths(text: str) -> set[str]:
    """Return the words of the code in `text` that look like paths of the house."""
    words = {word.rstrip(",;:") for line in code(text) for word in line.split()}
    top = {path.name for path in ROOT.iterdir()}
    return {
        word
        for word in words
        if (word.split("/")[0] in top and "/" in word)
        or re.fullmatch(rf"\w+(/|{FILE})", word)
    }


def links(text: str) -> set[str]:
    """Return the targets of the links and pictures in `text` that are no addresses."""
    found = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)
    return {a or b for a, b in found if not re.match(r"https?:", a or b)}


def anchors(path: Path) -> set[str]:
    """Return the anchors that a forge, or the book, makes of a page's headings."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = (c for c in notebooks.read(path).cells if c.cell_type == "markdown")
        text = "\n".join(cell.source for cell in cells)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@documents
def test_a_sentence_has_a_line(name):
    text = (ROOT / name).read_text()
    assert text == one_sentence_a_line(text)


def test_the_readme_is_not_wider_than_a_terminal():
    lines = (ROOT / "README.md").read_text().splitlines()
    # A row of a table, with its link, cannot be broken.
    assert [line for line in lines if len(line) > 100 and line[:1] != "|"] == []


@documents
def test_links_lead_somewhere(name):
    folder, text = (ROOT / name).parent, (ROOT / name).read_text()
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = folder / path if path else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", [name for name in NAMES if name != HISTORY])
def test_paths_exist(name):
    folder = (ROOT / name).parent
    for path in paths((ROOT / name).read_text()):
        if PLACEHOLDER.search(path) or MADE.match(path):
            continue
        there = (ROOT / path).exists() or (folder / path).exists()
        assert there or path in SHORT, path


def test_each_lesson_is_found_by_a_task():
    text = (ROOT / "book" / "tasks.md").read_text()
    main = {each for each in course.LESSONS if each.part != course.APPENDIX}
    assert {e.name for e in main if course.file(e) not in text} <= UNTASKED


@documents
def test_make_knows_every_target(name):
    text = "\n".join(code((ROOT / name).read_text()))
    found = set(re.findall(r"^(?:\w+=\S+ )*make ([a-z][a-z-]*)", text, re.M))
    assert found <= TARGETS, found - TARGETS


@pytest.mark.parametrize(
    "name", [".ci/run", ".devcontainer/devcontainer.json", ".github/workflows/ci.yml"]
)
def test_machines_call_what_make_knows(name):
    found = re.findall(r"(?:^|run: |\")make ([a-z-]+)", (ROOT / name).read_text(), re.M)
    assert found and set(found) <= TARGETS, set(found) - TARGETS


def test_the_newest_changes_are_those_of_the_version():
    project = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', project, re.M)
    newest = re.search(r"^## \[(\d\S+)\]", (ROOT / HISTORY).read_text(), re.M)
    assert newest[1] == version[1]

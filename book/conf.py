"""The book: the committed lessons as pages, built by Sphinx; nothing is executed.

    make book, make epub

The pages are the files of the repository: README.md in front, the notebooks in their
order, the guides. What a page says stands there and nowhere else; this file says how it
is shown.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "book")]

import apis  # noqa: E402

from tools import course  # noqa: E402

project = html_title = "DDP Lab"
author = copyright = "the DDP Lab authors"
version = re.search('^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
extensions = ["myst_nb", "sphinx_copybutton", "lessons"]
root_doc = "README"
include_patterns = [
    "README.md",
    "notebooks/*.ipynb",
    "TROUBLESHOOTING.md",
    "ELSEWHERE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "whichrank/README.md",
    "whichrank/CHANGELOG.md",
    "whichrank/CONTRIBUTING.md",
    "classroom/*.md",
    "book/*.md",
]
exclude_patterns = [".*", "build", "work", "tests"]  # nor are these looked through
nb_execution_mode = "off"
myst_heading_anchors = 4
html_theme = "sphinx_book_theme"
templates_path = ["templates"]
html_static_path = ["static", "../figs/planner.js", "../figs/planner.css"]
html_css_files = ["icons.css", "book.css", "steps.css", "planner.css"]
html_js_files = ["book.js", "planner.js", "play.js"]
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_theme_options = {
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "github-dark-high-contrast",
}
copybutton_selector = "div.highlight pre:not(.cell_output pre)"
epub_basename = "ddp-lab"
epub_show_urls = "no"
epub_exclude_files = ["search.html"]

# A cell of a notebook is no pure Python.
suppress_warnings = ["misc.highlighting_failure", "epub.unknown_project_files"]

GUIDES = {
    "To look up": [
        "book/tasks",
        "TROUBLESHOOTING",
        "book/glossary",
        "book/apis",
        "book/tools",
        "book/steps",
        "book/steps_training",
        "book/play",
    ],
    "Guides": ["whichrank/README", "ELSEWHERE", "CHANGELOG", "whichrank/CHANGELOG"],
    "For instructors and maintainers": [
        "classroom/README",
        "classroom/INSTRUCTORS",
        "CONTRIBUTING",
        "whichrank/CONTRIBUTING",
    ],
}


def navigation() -> str:
    """Return the tables of contents that the front page ends with."""
    trees = {
        f"{part} · {course.hours(lessons).replace('ours', '')}": [
            f"notebooks/{Path(course.file(lesson)).stem}" for lesson in lessons
        ]
        for part, lessons in course.parts().items()
    }
    return "\n".join(
        "\n".join(
            ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
        )
        for caption, pages in {**trees, **GUIDES}.items()
    )


def read(app, page, source):
    """Change what a page says where a book differs from a repository."""
    if page == root_doc:
        source[0] += navigation()
    if page == "book/apis":
        source[0] += apis.index()
    source[0] = re.sub(r"^- \[ \] ", "- ☐ ", source[0], flags=re.M)
    # Assignments hold their solutions: they are named, and stay where they are.
    source[0] = re.sub(r"\[([^]]+)\]\(source/[^)]*\)", r"\1", source[0])


def copy_drawings(app):
    """Put the drawings where the pages' own HTML looks for them."""
    for pattern in ("*.svg", "*.png"):
        for drawing in (ROOT / "figs").glob(pattern):
            (app.outdir / "figs").mkdir(parents=True, exist_ok=True)
            shutil.copy(drawing, app.outdir / "figs")


def setup(app):
    """Connect what is done with each page; called by Sphinx."""
    app.connect("source-read", read)
    app.connect("builder-inited", copy_drawings)
    return {"parallel_read_safe": True}

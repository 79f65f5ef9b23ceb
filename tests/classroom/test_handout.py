"""What students get works by itself, and gives no answer away, in whichever form."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from course import solution, visible

from classroom.engine.assignment import names, notebook
from ddp_lab import ROOT
from tools.notebooks import STUBS, programs

pytestmark = pytest.mark.sandbox
pytest.importorskip("nbgrader", reason="the lessons do without it")

from classroom.engine import handout, leaks  # noqa: E402

HAND_OUT = """
import sys, zipfile
from classroom.engine.__main__ import COURSE, main, release

for name in {names}:
    release(name)
for answers in ("--answers", ""):  # students unpack the last one
    sys.argv = ["engine", "handout", *filter(None, [answers])]
    main()
    with zipfile.ZipFile(COURSE / "handout" / "ddp-lab-students.zip") as archive:
        archive.extractall({home!r} + answers)
"""
SENT = [".py", ".ipynb", ".svg", ".md", ".sbatch", ".json", ".toml", ".txt"]
SENT += [".cff", ".html", ".typed", ""]  # the steppers; LICENSE, Makefile, .gitignore
# What lies at the root.
GIVEN = """
    .gitignore CITATION.cff LICENSE Makefile README.md TROUBLESHOOTING.md pyproject.toml
    requirements.txt
"""
# Of the engine, what `check` needs.
ENGINE = """
    __init__ assignment check modules ranks recorder rig runner values verdict
"""
# A path into one of the folders that a clone has.
OURS = re.compile(r"(?<![\w./-])(?:bench|classroom|figs|tests|tools)/[\w./]*\w")
EXTRA = [
    "notebooks/99_answers.ipynb",
    "ddp_lab/p2p/right.py",
    "ddp_lab/secret.py",
    "classroom/engine/secret.py",
    "classroom/assignments/ring/answers.py",
    "classroom/students/answers.md",
    "tools/secret.py",
    "bench/secret.py",
    "data/answers.json",
    "figs/answers.txt",
    "answers.md",
]


def python(code: str, folder: Path, **env: str) -> str:
    """Run Python code in `folder`, whose modules go before those installed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(
    scope="module",
    params=[["ring"], pytest.param(names(), marks=pytest.mark.full)],
    ids=["ring", "all"],
)
def handed(request, tmp_path_factory):
    """Return the names of assignments, and the folder that students have unpacked."""
    course = tmp_path_factory.mktemp("course")
    home = tmp_path_factory.mktemp("home") / "home"
    code = HAND_OUT.format(names=request.param, home=str(home))
    python(code, ROOT, DDP_LAB_COURSE=str(course))
    return request.param, home / handout.NAME


def test_it_holds_what_it_should_and_nothing_else(handed):
    assignments, folder = handed
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {*handout.contents(assignments), *handout.documents([])}
    assert {path.suffix for path in map(Path, files)} <= {*SENT}
    given = {file for file in files if "/" not in file}
    assert given == {*GIVEN.split()}
    given = {file for file in files if file.startswith("classroom/engine/")}
    assert given <= {f"classroom/engine/{name}.py" for name in ENGINE.split()}
    own = {
        f"classroom/assignments/{name}/{module}.py"
        for name in assignments
        for module in ("__init__", "criteria", "harness")
    }
    given = {file for file in files if file.startswith("classroom/")} - given
    packages = {f"classroom{part}/__init__.py" for part in ("", "/assignments")}
    beside = {file for file in given if "/assignments/beside/" in file}
    assert given - beside == own | packages | {"classroom/README.md"}
    never = re.compile(r"source/|tests/|answers/|mistakes|judge|leaks|submission")
    assert not [name for name in files if never.search(name)]
    assert leaks.leaks(folder) == []
    for lesson in folder.glob("notebooks/*.ipynb"):
        made = [path for path, _ in programs(lesson) if not path.name.startswith(STUBS)]
        written = {str(path.relative_to(ROOT)) for path in made}
        assert written <= files, lesson


def test_no_assignment_gives_an_answer_away(tmp_path):
    """Else nobody gets a zip: by chance a case that is shown is a hidden one, or a line
    of what judges is that of a solution.
    """
    for name, file in handout.contents(names()).items():
        if name.startswith("classroom/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tmp_path / name)
    for name in names():
        cells = nbformat.read(notebook("source", name), as_version=4).cells
        shown = [leaks.HIDDEN.sub("", leaks.SOLUTION.sub("", c.source)) for c in cells]
        (tmp_path / f"{name}.txt").write_text("\n".join(shown))
    assert leaks.leaks(tmp_path) == []


def test_every_link_in_it_leads_somewhere(handed):
    _, folder = handed
    for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.ipynb")]):
        text = path.read_text()
        assert path.suffix == ".ipynb" or "TABLE" not in text
        if path.suffix == ".ipynb":
            cells = nbformat.read(path, as_version=4).cells
            text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            assert (path.parent / link).exists(), (path.name, link)


def test_what_it_speaks_of_is_there(handed):
    """What students do not have is in the lab's repository, and that is said."""
    _, folder = handed
    for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.ipynb")]):
        text = path.read_text()
        if path.suffix == ".ipynb":
            cells = nbformat.read(path, as_version=4).cells
            text = "\n".join(cell.source for cell in cells)
        for line in text.splitlines():
            for name in OURS.findall(line):
                known = (
                    folder / name
                ).exists() or "the lab's repository" in line.lower()
                assert known, (path.name, name)


def test_make_knows_what_the_readme_says(handed):
    text = (handed[1] / "README.md").read_text()
    done = subprocess.run(["make", "help"], cwd=handed[1], capture_output=True)
    known = re.findall(r"^  ([a-z-]+) ", done.stdout.decode(), re.M)
    asked = set(re.findall(r"^(?:\| `)?make ([a-z]+)", text, re.M))
    assert asked and asked <= {*known}
    assert not {"test", "release", "grade", "handout"} & {*known}


def test_a_student_s_check_works_there(handed):
    assignments, folder = handed
    python("from tools import work\nwork.make()", folder)
    for name in assignments:
        copy = folder / "work" / "assignments" / name / f"{name}.ipynb"
        assert "NotImplementedError" in copy.read_text()
        written = folder / "work" / "build" / "classroom"
        written.mkdir(parents=True, exist_ok=True)
        for file, text in solution(name).items():
            (written / file).write_text(text)
        criterion, cases = next(iter(visible(name).items()))
        # As a kernel in that folder does.
        code = "import os, pathlib, ddp_lab\n"
        code += "os.chdir(ddp_lab.workplace(pathlib.Path.cwd()))\n"
        code += "from classroom.engine.check import make_check\n"
        code += f"make_check({name!r})({criterion!r}, {cases[0]!r})"
        said = python(code, copy.parent, PYTHONPATH=str(folder))
        assert said.strip().endswith(": pass"), said


def test_a_new_file_is_not_handed_out_by_accident(tmp_path):
    before = {*handout.contents(["ring"])}
    for name in {path.split("/")[0] for path in before} | {"README.md"}:
        if name == "assignments":  # which comes from release/
            continue
        if (ROOT / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__", "release", "exchange")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    for name in EXTRA:
        assert not (tmp_path / name).exists()
        empty = nbformat.writes(nbformat.v4.new_notebook())
        (tmp_path / name).write_text(empty if name.endswith(".ipynb") else "")
    code = "import json\nfrom classroom.engine import handout\n"
    code += "print(json.dumps([*handout.contents(['ring'])]))"
    assert {*json.loads(python(code, tmp_path))} == before


HINT = "from ddp_lab.kit import hint\nhint('p2p/exercise')"


@pytest.mark.parametrize("answers", ["", "--answers"], ids=["kept", "given"])
def test_answers_to_the_lessons_go_along_if_the_course_says_so(answers, handed):
    folder = handed[1].parent.with_name(f"home{answers}") / handout.NAME
    there = {path.relative_to(folder) for path in folder.glob("answers/**/*.py")}
    known = {path.relative_to(ROOT) for path in ROOT.glob("answers/*/*.py")}
    assert known and there == (known if answers else set())
    said = python(HINT, folder)
    assert ("p2p/exercise, hint 1 of" if answers else "kept by your course") in said


# --- the search ---


def in_json(text: str, **place) -> str:
    """Return a notebook with `text`, as a list of lines, in an output."""
    output = {"output_type": "stream", "text": text.splitlines(keepends=True)}
    cell = {"cell_type": "code", "source": [], "outputs": [output], "metadata": {}}
    return json.dumps({"cells": [cell], "metadata": {}})


def solved() -> str:
    return solution("split")["split.py"]


def source() -> str:
    return notebook("source", "resume").read_text()


def lines_of_split() -> list[str]:
    """Return what is told by a solution alone."""
    return sorted(leaks.solutions()[SPLIT])


SPLIT = "split, program: a solution"
NO_TEXT = "no text, so it cannot be searched"
PLANTED = {
    "a solution": ("a.py", lambda: solved(), SPLIT),
    "in a text": ("a.md", lambda: f"> {solved()}", SPLIT),
    "in an output": ("a.ipynb", lambda: in_json(solved()), SPLIT),
    "in comments of one's own": (
        ".a/.b.py",
        lambda: re.sub(r"(?m)(?:  # .*)?$", "  # mine", solved()),
        SPLIT,
    ),
    "two lines": ("a.md", lambda: "\n".join(lines_of_split()[:2]), SPLIT),
    "a source notebook": ("a.ipynb", source, "a mark of the source notebook"),
    "a hidden case": (
        "a.py",
        lambda: "dict(ranks = 4,\n  per_node=4, length=7, seed=16)",
        "clinic, leaders_cure: the hidden case",
    ),
    "a hidden case as JSON": (
        "a.txt",
        lambda: '{"ranks": 4, "per_node": 4, "length": 7, "seed": 16}',
        "clinic, leaders_cure: the hidden case",
    ),
    "packed": ("a.zip", lambda: b"PK\x03\x04\xff" + solved().encode(), NO_TEXT),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name, tmp_path):
    file, made, said = PLANTED[name]
    data = made()
    data = data if isinstance(data, bytes) else data.encode()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(data)
    found = leaks.leaks(tmp_path)
    assert any(line.startswith(f"{file}: {said}") for line in found), found


def test_what_gives_answers_away_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(handout, "HANDOUT", tmp_path / "handout")
    monkeypatch.setattr(handout, "documents", lambda names: {"a.md": solved()})
    monkeypatch.setattr(handout, "contents", lambda names, answers: {})
    with pytest.raises(SystemExit, match="a.md: split, program: a solution"):
        handout.hand_out([])
    assert not (tmp_path / "handout").exists()


def test_there_is_something_to_look_for():
    for known in (leaks.solutions(), leaks.cases()):
        assert {name.partition(",")[0] for name in known} == {*names()}

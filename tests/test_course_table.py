"""The course is stated once: all that follows is written from it, numbers too."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from conftest import copied
from support import FULL

pytest.importorskip("nbformat", reason="tools.course needs Jupyter")

from tools import course, notebooks  # noqa: E402

DOCUMENTS = ["README.md", "TROUBLESHOOTING.md", "classroom/INSTRUCTORS.md"]
ROW = r'    Lesson\(\n        "{}",.*?\n    \),\n'

lessons = pytest.mark.parametrize("lesson", course.LESSONS, ids=lambda each: each.name)


def differ() -> set[str]:
    """Return the names of the files that are not what the rows say."""
    return {path.name for path, text in course.written() if path.read_text() != text}


def test_readme_and_headers_are_what_the_command_writes():
    assert differ() == set()


def test_the_readme_counts_lessons_hours_and_assignments():
    readme = (course.ROOT / "README.md").read_text()
    hours = sum(lesson.minutes for lesson in course.LESSONS) / 60
    assert f"The {len(course.LESSONS)} lessons take about {hours:.0f} hours" in readme
    table = (course.ROOT / "classroom" / "README.md").read_text()
    rows = re.findall(r"\| \d+ · .*\(source/", table)
    assert f"holds {len(rows)} assignments" in readme


@pytest.mark.parametrize(
    "change",
    [{"minutes": 1}, {"ranks": 3}, {"after": "the_ward"}, {"title": "Another"}],
)
def test_a_row_that_differs_is_noticed(monkeypatch, change):
    rows = [*course.LESSONS]
    rows[5] = replace(rows[5], **change)
    monkeypatch.setattr(course, "LESSONS", tuple(rows))
    assert {"README.md", course.file(rows[5])} <= differ()


@lessons
def test_the_row_is_true_of_the_notebook(lesson):
    path = course.PATH / course.file(lesson)
    cells = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
    assert cells[1].source.startswith(f"nproc = {lesson.ranks} ")
    folders = {program.parent.name for program, _ in notebooks.programs(path)}
    assert folders == {lesson.programs}


@lessons
def test_what_comes_before_is_in_no_later_place(lesson):
    order = [each.name for each in course.LESSONS]
    places = [order.index(name) for name in lesson.after.split()]
    assert all(place < order.index(lesson.name) for place in places)


def known(names: list[str]) -> set[str]:
    """Return these lessons, and all that come before them."""
    more = [name for each in names for name in course.NAMED[each].after.split()]
    return {*names} | (known(more) if more else set())


@pytest.mark.parametrize("track", course.TRACKS, ids=lambda each: each.reader)
def test_a_path_leans_on_nothing_outside_of_it(track):
    taken = known(track.knows.split())
    for name in track.lessons.split():
        assert {*course.NAMED[name].after.split()} <= taken, name
        taken.add(name)


@FULL
@pytest.mark.processes
@pytest.mark.parametrize("track", course.TRACKS, ids=lambda each: each.reader)
def test_a_path_runs_where_no_other_lesson_has_run(track, tmp_path):
    folder, before = copied(tmp_path), known(track.knows.split())
    taken = [name for name in course.NAMED if name in before]
    taken += track.lessons.split()
    for lesson in course.LESSONS:
        path = course.PATH / course.file(lesson)
        for program, _ in notebooks.programs(path) if lesson.name not in taken else ():
            (folder / program.relative_to(course.ROOT)).unlink(missing_ok=True)
    numbers = [course.NUMBERS[name] for name in taken]
    command = [sys.executable, "-m", "tools.lab", "--nproc", "", "--jobs", "", *numbers]
    subprocess.run(command, cwd=folder, check=True)


def test_every_notebook_has_a_row():
    names = [path.name for path in notebooks.lessons()]
    assert names == [course.file(lesson) for lesson in course.LESSONS]


# --- numbers that change, in a copy of the repository ---


def run(folder, module: str) -> str:
    """Return what `python -m module` prints in the copy in `folder`."""
    command = [sys.executable, "-m", module]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)}
    return subprocess.check_output(command, cwd=folder, env=env, text=True)


def look(folder) -> None:
    """Assert that all in the copy in `folder` agree on the lessons' numbers."""
    paths = sorted((folder / "notebooks").glob("*.ipynb"))
    numbers = [path.name[:2] for path in paths]
    rest = sum(number.startswith("A") for number in numbers)
    assert numbers[-rest:] == [f"A{n}" for n in range(1, rest + 1)]
    assert numbers[:-rest] == [f"{n:02}" for n in range(len(paths) - rest)]
    for path in [*paths, *(folder / name for name in DOCUMENTS)]:
        text = path.read_text()
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join("".join(cell["source"]) for cell in cells)
        for label, name in re.findall(r"\[([^]]*)\]\((?!http)([^)#\s]+\.ipynb)", text):
            assert (path.parent / name).exists(), (path.name, name)
            number = re.match(r"(?:lesson )?(A?\d+)\b", label)
            place = name.rpartition("/")[2][:2].removeprefix("0")
            assert not number or number[1] == place, (path.name, label)
    for program in sorted(folder.glob("ddp_lab/*/*.py")):
        told = re.search(r"^Written by (.*)\.$", program.read_text(), re.M)
        assert not told or (folder / told[1]).exists(), program
    assert run(folder, "tools.troubleshooting") in (folder / DOCUMENTS[1]).read_text()
    assert run(folder, "tools.course") == ""  # there is no more to write


def rewrite(folder, name: str, change) -> None:
    """Change one row of the course in the copy in `folder`, and run the command."""
    path = folder / "tools" / "course.py"
    text = path.read_text()
    (row,) = re.findall(ROW.format(name), text, re.S)
    path.write_text(change(text, row))
    run(folder, "tools.course")


def text_of(folder, number: str, name: str) -> str:
    return (folder / "notebooks" / f"{number:0>2}_{name}.ipynb").read_text()


@pytest.mark.processes
def test_a_lesson_is_inserted_by_its_row_and_two_change_places(tmp_path):
    folder = copied(tmp_path)
    source = folder / "notebooks" / course.file(course.LESSONS[1])
    shutil.copy(source, source.with_name("99_more_messages.ipynb"))

    def insert(text, row):
        new = row.replace("point_to_point", "more_messages").replace("Point to", "More")
        return text.replace(row, row + new)

    def swap(text, row):
        (other,) = re.findall(ROW.format("when_it_hangs"), text, re.S)
        return text.replace(row + other, other + row)

    rewrite(folder, "point_to_point", insert)
    rewrite(folder, "cifar10_resnet", swap)
    look(folder)
    assert '"# 2 · More' in text_of(folder, "2", "more_messages")
    main = [each.name for each in course.LESSONS if each.part != course.APPENDIX]
    now = {name: str(number + (number > 1)) for number, name in enumerate(main)}
    now |= {"cifar10_resnet": now["when_it_hangs"]}
    now |= {"when_it_hangs": str(int(now["cifar10_resnet"]) - 1)}
    for name in ("cifar10_resnet", "when_it_hangs"):
        title = course.NAMED[name].title
        assert f'"# {now[name]} · {title}' in text_of(folder, now[name], name)
    # Numbers without a link follow as well: in prose, in code, and in a syllabus.
    assert f"ported as in lesson {now['your_script']}" in text_of(
        folder, now["when_it_hangs"], "when_it_hangs"
    )
    guide = (folder / "classroom" / "README.md").read_text()
    assert f"[split](source/split/split.ipynb) | 1, {now['model_parallel']} |" in guide

"""The syllabuses add up, and come in an order in which they can be taught."""

import re

import pytest

from classroom.engine.assignment import LAB, home
from classroom.engine.assignment import names as all_names
from tools import course

pytestmark = pytest.mark.sandbox


def names() -> list[str]:
    """Return the lab's assignments: a course's own need no place in its plan."""
    return [name for name in all_names() if home(name) == LAB]


GUIDE = (LAB / "INSTRUCTORS.md").read_text()
LESSONS = {course.NUMBERS[each.name]: each.minutes for each in course.LESSONS}
ASSIGNMENTS = {
    name: ({*lessons.split(", ")}, int(minutes))
    for name, lessons, minutes in re.findall(
        r"^\| \d+ · .*\[(\w+)\]\(.*\) \| ([\dA, ]+) \| (?:\d+–)?(\d+) \|$",
        (LAB / "README.md").read_text(),
        re.M,
    )
}
WEEKS = {"Twelve weeks": 12, "Six weeks": 6}


def weeks(title: str) -> list[tuple[int, list[str], str, str]]:
    """Return the rows of a syllabus: week, lessons, assignment, hours."""
    section = GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]
    row = re.compile(r"^\| (\d+) \| ([\dA, ]+) \| (\w*) ?\| ([\d.]+) \|$", re.M)
    return [
        (int(week), lessons.split(", "), assignment, hours)
        for week, lessons, assignment, hours in row.findall(section)
    ]


@pytest.mark.parametrize("title", WEEKS)
def test_hours_are_the_minutes_of_lessons_and_assignments(title):
    assert [row[0] for row in weeks(title)] == [*range(1, WEEKS[title] + 1)]
    for week, lessons, assignment, hours in weeks(title):
        minutes = sum(LESSONS[lesson] for lesson in lessons)
        if assignment in names():
            minutes += ASSIGNMENTS[assignment][1]
            assert hours == f"{minutes / 60:.1f}", week
        elif not assignment:
            assert hours == f"{minutes / 60:.1f}", week


@pytest.mark.parametrize("title", WEEKS)
def test_nothing_is_asked_before_it_was_taught(title):
    taught: set[str] = set()
    for week, lessons, assignment, _ in weeks(title):
        assert taught.isdisjoint(lessons)
        taught |= {*lessons}
        assert ASSIGNMENTS.get(assignment, (set(), 0))[0] <= taught, week


def test_twelve_weeks_have_everything_once():
    rows = weeks("Twelve weeks")
    assert sorted(sum((row[1] for row in rows), [])) == sorted(LESSONS)
    given = [row[2] for row in rows if row[2]]
    assert len(given) == len({*given}) and {*names()} <= {*given}


def test_what_six_weeks_leave_out_is_told():
    text = GUIDE.split("## Six weeks\n")[1].split("\n## ")[0]
    (line,) = re.findall(r"^It leaves out lessons .*$", text, re.M)
    rows = weeks("Six weeks")
    lessons, assignments = line.split(", and ", 1)
    left = {*LESSONS} - {*sum((row[1] for row in rows), [])}
    assert {*re.findall(r"\bA?\d+", lessons)} == left
    told = {*re.findall(r"\*(\w+)\*", assignments)}
    assert told | {row[2] for row in rows} == {
        row[2] for row in weeks("Twelve weeks")
    } - {""}

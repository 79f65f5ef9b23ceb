"""The roster: who takes the course.

roster.csv, in the course's folder, is either what Canvas writes, *Grades → Export*,
unchanged, or a table:

    id,last_name,first_name,email,section
    anna,Ahlgren,Anna,anna@example.org,Tuesday

Canvas's columns are Student, ID, others by which a school knows a student, Section;
then one for each assignment, `Ring (4711)`, and totals (lib/gradebook_exporter.rb in
github.com/instructure/canvas-lms).
"""

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from classroom.engine.assignment import COURSE

ROSTER = COURSE / "roster.csv"
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
TEST_STUDENT = "Student, Test"  # of Canvas's student view
TITLE = re.compile(r"(.*) \(\d+\)")

Person = dict[str, str]
"""`id`, `name`, `last_name`, `first_name`, `email`, `section`; and Canvas's columns."""


@dataclass(frozen=True)
class Roster:
    """Who takes the course, in the order of the file."""

    people: list[Person] = field(default_factory=list)
    columns: list[str] = field(default_factory=lambda: CANVAS)
    """Canvas's columns about a student."""
    titles: list[str] = field(default_factory=list)
    """Canvas's columns for assignments, `Ring (4711)`."""

    def find(self, student: str) -> Person | None:
        """Return who hands in as `student`; None if nobody does, or two may be meant.

        It may be any name that the roster has for them, or the part of an email address
        before its @.
        """
        found = []
        for person in self.people:
            email = person["email"]
            known = {person["id"], person["ID"], person.get("SIS User ID"), email}
            if student in known | {email.partition("@")[0]} - {"", None}:
                found.append(person)
        return found[0] if len(found) == 1 else None

    def title(self, assignment: str) -> str:
        """Return the title of Canvas's column that has the assignment's name as a word.

        Where there is none, or two are, Canvas will ask about the name itself.
        """
        word = re.compile(rf"\b{re.escape(assignment)}\b", re.I)
        found = [title for title in self.titles if word.search(title)]
        return found[0] if len(found) == 1 else assignment


def read(path: Path = ROSTER) -> Roster:
    """Read a roster; an empty one if there is no file.

    Raises:
        SystemExit: if it is no roster; it says why.
    """
    if not path.exists():
        return Roster()
    text = path.read_text(encoding="utf-8-sig")
    comma = max(",;\t", key=text.partition("\n")[0].count)  # as some languages have it
    table = csv.reader(io.StringIO(text, newline=""), delimiter=comma)
    head, *lines = [[cell.strip() for cell in line] for line in table] or [[]]
    rows = [dict(zip(head, line, strict=False)) for line in lines if any(line)]
    if {"ID", "Section"} <= {*head}:
        # Above the students are up to two rows about the assignments.
        rows = [row for row in rows if row["ID"] and row.get("Student") != TEST_STUDENT]
        people = [_from_canvas(row) for row in rows]
        columns = head[: head.index("Section") + 1]
        roster = Roster(people, columns, [name for name in head if TITLE.match(name)])
    elif all(row.get("id") for row in rows):
        roster = Roster([person(**row) for row in rows])
    else:
        what = "neither Canvas's export nor a table with an id in each row"
        raise SystemExit(f"{path.name} is {what}")
    counts = Counter(each["id"] for each in roster.people)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise SystemExit(f"{path.name}: {', '.join(twice)} is there more than once")
    return roster


def _from_canvas(row: dict[str, str]) -> Person:
    last, _, first = row.get("Student", "").partition(", ")
    login = row.get("SIS Login ID", "")
    about = person(
        login or row.get("SIS User ID") or row["ID"],
        row.get("LastName", last),
        row.get("FirstName", first),
        login if "@" in login else "",
        row["Section"],
    )
    return about | row


def person(
    id: str,
    last_name: str = "",
    first_name: str = "",
    email: str = "",
    section: str = "",
    **_: str,
) -> Person:
    """Return somebody whom Canvas will look for by its SIS IDs."""
    name = ", ".join(filter(None, (last_name, first_name))) or id
    about = {"id": id, "last_name": last_name, "first_name": first_name}
    about |= {"name": name, "email": email, "section": section}
    return about | dict(zip(CANVAS, [name, "", id, id, section], strict=True))

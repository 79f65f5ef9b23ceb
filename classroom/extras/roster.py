"""The roster: who takes the course, and by which columns their school knows them.

classroom/roster.csv is either Canvas's own file, *Grades → Export*, as it comes, or a
table whose columns are named as in nbgrader or in Moodle's export:

    id,last_name,first_name,email,section
    anna,Ahlgren,Anna,anna@example.org,Tuesday

Canvas's columns are those of its `lib/gradebook_exporter.rb` and, when it reads them
again, `lib/gradebook_importer.rb` (github.com/instructure/canvas-lms): Student, or
LastName and FirstName; ID; SIS User ID and SIS Login ID, where you may see them;
Integration ID and Root Account, at some schools; Section. A column for each assignment
follows, `Ring (4711)`, and read-only totals.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

from nbgrader.api import Gradebook

from classroom.engine.assignment import COURSE

ROSTER = COURSE / "roster.csv"
DUE = COURSE / "due.txt"
"""Lines such as `ring 2026-03-06 23:59 UTC`: when an assignment is due."""
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
OF_STUDENTS = {*CANVAS, "LastName", "FirstName", "Integration ID", "Root Account"}
TEST_STUDENT = "Student, Test"  # of Canvas's student view
TITLE = re.compile(r"(.*) \(\d+\)")
# What the other kind of table may call its columns, in the order of a Person's fields;
# the first that is there counts.
NAMES = [
    ("id", "username", "id_number"),
    ("last_name", "surname"),
    ("first_name",),
    ("email", "email_address"),
    ("section", "groups"),
    ("sis_user_id", "id_number"),
    ("lms_user_id", "canvas_id"),
]


@dataclass(frozen=True)
class Person:
    """Somebody who takes the course."""

    id: str
    """As the folder in submitted/ is called, if nothing else is found there."""
    last_name: str = ""
    first_name: str = ""
    email: str = ""
    section: str = ""
    number: str = ""
    """The school's own: Canvas's SIS User ID, Moodle's ID number."""
    canvas: str = ""
    """Canvas's ID."""
    row: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What a Canvas export says of this person, grades included."""

    @property
    def name(self) -> str:
        """Return the name as Canvas sorts it: `Ahlgren, Anna`."""
        return ", ".join(part for part in (self.last_name, self.first_name) if part)

    def columns(self) -> dict[str, str]:
        """Return what Canvas knows this person by."""
        made = [self.name or self.id, self.canvas, self.number or self.id, self.id]
        return dict(zip(CANVAS, [*made, self.section], strict=True)) | dict(self.row)


@dataclass(frozen=True)
class Roster:
    """Everybody who takes the course, in the order of the file."""

    people: list[Person] = field(default_factory=list)
    columns: list[str] = field(default_factory=lambda: CANVAS)
    """Canvas's columns about a student."""
    assignments: list[str] = field(default_factory=list)
    """Canvas's columns for assignments, `Ring (4711)`."""

    def find(self, name: str) -> Person | None:
        """Return who hands in as `name`: a login, a number or an e-mail address."""
        found = [person for person in self.people if name in _called(person)]
        return found[0] if len(found) == 1 else None

    def column(self, assignment: str) -> str:
        """Return the title of an assignment's column.

        It is the only one of Canvas's that has the assignment's name as a word. Where
        none has, Canvas will ask whether to make a new assignment.
        """
        word = re.compile(rf"\b{re.escape(assignment)}\b", re.I)
        known = [(title, TITLE.fullmatch(title)) for title in self.assignments]
        found = [title for title, match in known if match and word.search(match[1])]
        return found[0] if len(found) == 1 else assignment


def _called(person: Person) -> set[str]:
    other = {person.number, person.canvas, person.email, person.email.split("@")[0]}
    return {person.id, *other} - {""}


def read(path: Path = ROSTER) -> Roster:
    """Read a roster; an empty one if there is no file.

    Raises:
        SystemExit: if it is no roster; it says why.
    """
    if not path.exists():
        return Roster()
    text = path.read_text(encoding="utf-8-sig")
    table = list(csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text)))
    head, *lines = [[cell.strip() for cell in line] for line in table if any(line)]
    rows = [dict(zip(head, line, strict=False)) for line in lines]
    canvas = {"ID", "Section"} <= {*head} and {"Student", "LastName"} & {*head}
    roster = _from_canvas(head, rows) if canvas else _from_table(path, rows)
    counts = Counter(person.id for person in roster.people)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise SystemExit(f"{path.name}: {', '.join(twice)} is there more than once")
    return roster


def _separator(text: str) -> str:
    """Return what separates the columns: a semicolon, in some languages' exports."""
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _from_canvas(head: list[str], rows: list[dict[str, str]]) -> Roster:
    people = []
    for row in rows:
        student = row.get("Student", "")
        # Above the students are up to two rows about the assignments.
        if not row["ID"] or student == TEST_STUDENT:
            continue
        last, _, first = student.partition(", ")
        login, number = row.get("SIS Login ID", ""), row.get("SIS User ID", "")
        people.append(
            Person(
                login or number or row["ID"],
                row.get("LastName", last),
                row.get("FirstName", first),
                login if "@" in login else "",
                row["Section"],
                number,
                row["ID"],
                row,
            )
        )
    columns = [name for name in head if name in OF_STUDENTS]
    return Roster(people, columns, [name for name in head if TITLE.fullmatch(name)])


def _from_table(path: Path, rows: list[dict[str, str]]) -> Roster:
    people = []
    for row in rows:
        known = {name.lower().replace(" ", "_"): cell for name, cell in row.items()}
        cells = [
            next((known[name] for name in names if known.get(name)), "")
            for names in NAMES
        ]
        if not cells[0]:
            wanted = "id, last_name, first_name, email, section"
            raise SystemExit(f"{path.name}: a row without an id; its columns: {wanted}")
        name, last, first, email, section, number, canvas = cells
        people.append(Person(name, last, first, email, section, number, canvas))
    return Roster(people)


def enter(roster: Roster, gradebook: Gradebook) -> None:
    """Let the gradebook, and so the Formgrader, know everybody by name."""
    already = {student.id for student in gradebook.students}
    for person in roster.people:
        name = next(iter(already & _called(person)), person.id)
        gradebook.update_or_create_student(
            name,
            last_name=person.last_name or None,
            first_name=person.first_name or None,
            email=person.email or None,
            lms_user_id=person.canvas or None,
        )


def enter_due(gradebook: Gradebook, path: Path = DUE) -> None:
    """Let the gradebook know the due dates that are in a file, if there is one.

    Raises:
        SystemExit: if a line makes no sense.
    """
    known = {assignment.name for assignment in gradebook.assignments}
    for line in path.read_text().splitlines() if path.exists() else []:
        name, _, when = line.partition("#")[0].strip().partition(" ")
        time, _, zone = when.strip().rpartition(" ")
        try:
            if name:
                due = datetime.fromisoformat(time).replace(tzinfo=ZoneInfo(zone))
                if name in known:  # nbgrader knows UTC, without saying so
                    due = due.astimezone(timezone.utc).replace(tzinfo=None)
                    gradebook.update_or_create_assignment(name, duedate=due)
        except (ValueError, LookupError, OSError):
            form = "ring 2026-03-06 23:59 Europe/Berlin, or UTC"
            raise SystemExit(
                f"{path.name}: {line!r} is no line as in: {form}"
            ) from None

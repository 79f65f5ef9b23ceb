"""The grades as files: for Canvas, for Moodle, and for a person.

Canvas (*Grades → Import*, `lib/gradebook_importer.rb` of canvas-lms) wants the columns
about students that its own export has, and after them one for each assignment. A row
whose first cell has "Points Possible" in it says how many points there are. It finds a
student by ID, SIS User ID or SIS Login ID, an assignment by the number in `Ring (4711)`
or by its title. An empty cell empties the grade that Canvas has.

Moodle (*Grades → Import → CSV file*, docs.moodle.org/en/Grade_import and
`grade/import/csv/classes/load_data.php`) wants UTF-8, a line of titles and one line for
each student. One column is mapped to the student, by ID number, user name or e-mail
address. If that cell names nobody, the import ends; if it is empty, the line's grades
go to the student above it. An empty cell empties the grade that Moodle has.
"""

import csv
from dataclasses import dataclass
from datetime import datetime, timezone

from nbgrader.api import Assignment, Grade, Gradebook, SubmittedAssignment

from classroom.engine.assignment import COURSE
from classroom.extras.late import LateDays, Lateness
from classroom.extras.roster import Person, Roster
from ddp_lab import from_here

POINTS = "    Points Possible"  # the spaces are Canvas's
EXCUSED = "EX"
MOODLE = ["ID number", "Username", "Last name", "First name"]
EMAIL = "Email address"
DETAILS = ["student", "name", "section", "assignment", "score", "max"]
DETAILS += ["blocked", "days late", "penalty"]


@dataclass(frozen=True)
class Result:
    """What one student has in one assignment."""

    score: float | None
    """With what lateness costs; None if there is none, or none yet."""
    maximum: float
    """Of what could be judged."""
    blocked: list[str]
    """The criteria that wait for a grade by hand."""
    lateness: Lateness | None

    @property
    def cell(self) -> str:
        return "" if self.score is None or self.blocked else f"{self.score:g}"


def write(gradebook: Gradebook, roster: Roster, policy: LateDays) -> list[str]:
    """Write grades.csv, grades-moodle.csv and grades-details.csv; return what to say.

    Whoever is on the roster is in the files. What was due and not handed in counts 0;
    what is not due yet, or has no due date, stays as it is.
    """
    policy.settle(gradebook)
    names = {student.id: roster.find(student.id) for student in gradebook.students}
    found: dict[str, dict[str, Result]] = {}
    for student in gradebook.students:
        late = policy.lateness(gradebook, student.id)
        done = {s.assignment.name: s for s in gradebook.student_submissions(student.id)}
        person = names[student.id]
        found[person.id if person else student.id] = {
            assignment.name: _result(
                assignment, done.get(assignment.name), late.get(assignment.name)
            )
            for assignment in gradebook.assignments
        }
    strangers = [name for name, person in names.items() if person is None]
    people = roster.people
    if not people:
        known = {student.id: student for student in gradebook.students}
        people = [
            Person(s.id, s.last_name or "", s.first_name or "", s.email or "")
            for _, s in sorted(known.items())
        ]
        strangers = []
    return [
        _write_canvas(people, roster, gradebook.assignments, found),
        _write_moodle(people, gradebook.assignments, found),
        _write_details(people, strangers, found),
        *(f"{name} is not on the roster: only in the details" for name in strangers),
    ]


def _result(
    assignment: Assignment,
    submission: SubmittedAssignment | None,
    lateness: Lateness | None,
) -> Result:
    due = submission.duedate if submission and assignment.duedate else None
    due = due or assignment.duedate
    grades = [g for n in submission.notebooks for g in n.grades] if submission else []
    if submission is None or not (_came(submission) or any(map(_scored, grades))):
        over = due is not None and due < datetime.now(timezone.utc).replace(tzinfo=None)
        return Result(0.0 if over else None, assignment.max_score, [], None)
    blocked = [g for g in grades if g.needs_manual_grade and g.manual_score is None]
    penalty = lateness.penalty if lateness else 0.0
    return Result(
        round(max(0.0, submission.score - penalty), 3),
        submission.max_score - sum(grade.max_score for grade in blocked),
        [grade.name for grade in blocked],
        lateness,
    )


def _came(submission: SubmittedAssignment) -> bool:
    """Tell whether it was handed in; an extension makes an entry, too."""
    name = submission.assignment.name
    return (COURSE / "submitted" / submission.student.id / name).is_dir()


def _scored(grade: Grade) -> bool:
    return (grade.auto_score, grade.manual_score) != (None, None)


def _write_canvas(
    people: list[Person],
    roster: Roster,
    assignments: list[Assignment],
    found: dict[str, dict[str, Result]],
) -> str:
    titles = {each.name: roster.column(each.name) for each in assignments}
    points = {titles[each.name]: f"{each.max_score:g}" for each in assignments}
    rows = [{roster.columns[0]: POINTS} | points]
    for person in people:
        row = person.columns()
        for name, title in titles.items():
            result, before = found.get(person.id, {}).get(name), row.get(title, "")
            # No grade of ours must not take away one that Canvas has.
            keep = result is None or not result.cell or before == EXCUSED
            row[title] = before if keep or result is None else result.cell
        rows.append(row)
    return _write("grades.csv", [*roster.columns, *titles.values()], rows)


def _write_moodle(
    people: list[Person],
    assignments: list[Assignment],
    found: dict[str, dict[str, Result]],
) -> str:
    # A column that is empty for somebody would be dangerous to map: see above.
    head = [*MOODLE, *([EMAIL] if all(person.email for person in people) else [])]
    rows = []
    for person in people:
        known = [person.number or person.id, person.id]
        known += [person.last_name, person.first_name, person.email]
        row = dict(zip([*MOODLE, EMAIL], known, strict=True))
        results = found.get(person.id, {})
        rows.append(row | {name: result.cell for name, result in results.items()})
    names = [assignment.name for assignment in assignments]
    return _write("grades-moodle.csv", [*head, *names], rows)


def _write_details(
    people: list[Person], strangers: list[str], found: dict[str, dict[str, Result]]
) -> str:
    rows = []
    for person in [*people, *map(Person, strangers)]:
        for name, result in found.get(person.id, {}).items():
            late = result.lateness or Lateness(0)
            cells = [person.id, person.name, person.section, name]
            cells += ["" if result.score is None else f"{result.score:g}"]
            cells += [f"{result.maximum:g}", " ".join(result.blocked)]
            cells += [str(late.days), f"{late.penalty:g}"]
            rows.append(dict(zip(DETAILS, cells, strict=True)))
    return _write("grades-details.csv", DETAILS, rows)


def _write(name: str, head: list[str], rows: list[dict[str, str]]) -> str:
    """Write a file; return its name and size."""
    path = COURSE / name
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, head, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return f"{from_here(path)}: {len(rows)} rows"

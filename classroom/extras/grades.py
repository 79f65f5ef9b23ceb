"""The grades as files: grades.csv for Canvas, grades-details.csv for a person.

Canvas (*Grades → Import*, lib/gradebook_importer.rb of canvas-lms) wants the columns
about students that its own export has, and after them one for each assignment. A row
whose first cell has "Points Possible" in it says how many points there are. It finds a
student by ID, SIS User ID or SIS Login ID, an assignment by the number in `Ring (4711)`
or by its title. An empty cell empties the grade that Canvas has.
"""

import csv
import warnings

from nbgrader.api import Gradebook, SubmittedAssignment

from classroom.engine.__main__ import begin_gradebook
from classroom.engine.assignment import COURSE
from classroom.extras.roster import Roster, person, read
from ddp_lab import from_here

POINTS = "    Points Possible"  # the spaces are Canvas's
EXCUSED = "EX"
NAMES = "last_name", "first_name", "email"
DETAILS = ["student", "name", "section", "assignment", "score", "max", "blocked"]


def write(gradebook: Gradebook, roster: Roster) -> list[str]:
    """Write both files; return what to say.

    The gradebook, and so the Formgrader, gets the roster's names. Whoever is not on the
    roster, if there is one, is in the details only.
    """
    everybody = {who["id"]: who for who in roster.people}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for student in gradebook.students:
        names = {key: getattr(student, key) or "" for key in NAMES}
        who = roster.find(student.id) or person(student.id, **names)
        everybody.setdefault(who["id"], who)
        known = {key: who[key] or None for key in NAMES}
        gradebook.update_or_create_student(student.id, **known)
        for submission in gradebook.student_submissions(student.id):
            found[who["id"], submission.assignment.name] = _result(submission)
    points = {each.name: f"{each.max_score:g}" for each in gradebook.assignments}
    titles = {name: roster.title(name) for name in points}
    head = [*roster.columns, *titles.values()]
    rows = [{head[0]: POINTS} | {titles[name]: most for name, most in points.items()}]
    for who in roster.people or everybody.values():
        rows.append({**who})
        for name, title in titles.items():
            rows[-1][title] = _cell(who.get(title, ""), found.get((who["id"], name)))
    details = [
        {"student": key, "name": who["name"], "section": who["section"]}
        | {"assignment": name, "max": most}
        | found.get((key, name), {})
        for key, who in everybody.items()
        for name, most in points.items()
    ]
    strangers = [key for key in everybody if roster.people and not roster.find(key)]
    return [
        _write("grades.csv", head, rows),
        _write("grades-details.csv", DETAILS, details),
        *(f"{key} is not on the roster: only in the details" for key in strangers),
    ]


def _result(submission: SubmittedAssignment) -> dict[str, str]:
    """Return score, maximum and blocked criteria; "" for the score if there is none."""
    grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
    scored = any((g.auto_score, g.manual_score) != (None, None) for g in grades)
    blocked = [g for g in grades if g.needs_manual_grade and g.manual_score is None]
    score = max(0.0, submission.score - (submission.late_submission_penalty or 0))
    return {
        "score": f"{round(score, 3):g}" if scored else "",
        "max": f"{submission.max_score - sum(g.max_score for g in blocked):g}",
        "blocked": " ".join(grade.name for grade in blocked),
    }


def _cell(before: str, result: dict[str, str] | None) -> str:
    """Return a grade for Canvas; where there is none of ours, what Canvas has."""
    if before == EXCUSED or result is None or result["blocked"]:
        return before
    return result["score"] or before


def _write(name: str, head: list[str], rows: list[dict[str, str]]) -> str:
    """Write a file; return its name and size."""
    path = COURSE / name
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, head, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return f"{from_here(path)}: {len(rows)} rows"


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="nbgrader")  # SQLAlchemy's, about it
    begin_gradebook()
    with Gradebook(f"sqlite:///{COURSE / 'gradebook.db'}", "ddp-lab") as gradebook:
        print(*write(gradebook, read()), sep="\n")

"""Roster in, grades out: files as Canvas and Moodle write and read them."""

import csv
import functools
import io
import re
import shutil
from datetime import datetime, timedelta

import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

from nbgrader.api import Gradebook  # noqa: E402
from nbgrader.preprocessors import NbGraderPreprocessor  # noqa: E402
from traitlets.config import Config  # noqa: E402

from classroom.engine.__main__ import begin_gradebook  # noqa: E402
from classroom.extras import __main__ as extras  # noqa: E402
from classroom.extras import grades, roster  # noqa: E402
from classroom.extras.late import LateDays, Lateness, Settle  # noqa: E402
from classroom.extras.roster import Person, Roster  # noqa: E402

pytestmark = pytest.mark.sandbox

# As Canvas writes it: a note about posting, the points, its own student, a total.
EXPORT = """\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,\
Assignment 1: Ring (4711),DDP from scratch (4712),Essay (4713),Current Score
,,,,,Manual Posting,,,
    Points Possible,,,,,10,10,5,(read only)
"Ahlgren, Anna",101,s0011,anna,Tuesday,,EX,4,80
"Bär, Bert",102,00012,bert,Friday,7,,,
"Coe, Carl",103,s0013,carl,Tuesday,,,,
"Student, Test",999,,f00ba4,Tuesday,,,,
"""
TABLE = """id,last_name,first_name,email,section
anna,Ahlgren,Anna,anna@example.org,Tuesday
bert,Bär,Bert,bert@example.org,Friday
"""
DUE = datetime(2024, 3, 4, 12)


def read(text: str, folder) -> Roster:
    path = folder / "roster.csv"
    path.write_text(text, encoding="utf-8")
    return roster.read(path)


# --- as the other side reads it ---


def as_canvas(text: str) -> tuple[list[str], dict[str, str], dict[str, dict]]:
    """Read a file as Canvas does: lib/gradebook_importer.rb of canvas-lms.

    Returns:
        The titles of the assignments, their points, and the grades by ID or, without
        one, by SIS User ID.
    """
    rows = list(csv.reader(io.StringIO(text, newline="")))
    head = rows[0]
    names = 2 if head[0] == "LastName" else 1
    assert head[0] in ("Student", "LastName") and head[names] == "ID"
    count = names + 1
    if "SIS Login ID" in head[count]:
        count += 1
    elif "SIS User ID" in head[count] and "SIS Login ID" in head[count + 1]:
        count += 2 + ("Integration ID" in head[count + 2])
        count += "Root Account" in head[count]
    assert "Section" in head[count], "Invalid header row"
    titles = [title for title in head[count + 1 :] if "Score" not in title]
    points, students = {}, {}
    for row in rows[1:]:
        if re.fullmatch("[;, ]+", ",".join(row)):
            continue
        cells = dict(zip(head, row, strict=True))
        if "Points Possible" in row[0]:
            points = {title: cells[title] for title in titles}
        elif not all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", c) for c in row):
            key = cells["ID"] or cells["SIS User ID"]
            students[key] = {title: cells[title].strip() for title in titles}
    for cell in [*points.values(), *(c for s in students.values() for c in s.values())]:
        assert cell in ("", "EX") or re.fullmatch(r"-?[0-9.,]+%?", cell), cell
    return titles, points, students


def as_moodle(data: bytes, mapped: str) -> dict[str, dict]:
    """Read a file as Moodle does: grade/import/csv/classes/load_data.php."""
    head, *rows = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
    students = {}
    for row in rows:
        assert len(row) == len(head)
        cells = dict(zip(head, map(str.strip, row), strict=True))
        assert cells[mapped], "its grades would go to the student above"
        known = {*grades.MOODLE, grades.EMAIL}
        students[cells[mapped]] = {k: v for k, v in cells.items() if k not in known}
        for cell in students[cells[mapped]].values():
            assert cell in ("", "-") or float(cell) is not None
    return students


# --- the roster ---


def test_canvas_own_export_is_a_roster(tmp_path):
    found = read(EXPORT, tmp_path)
    assert [person.id for person in found.people] == ["anna", "bert", "carl"]
    anna, bert, _ = found.people
    assert (anna.last_name, anna.first_name) == ("Ahlgren", "Anna")
    assert (bert.number, bert.canvas, bert.section) == ("00012", "102", "Friday")
    assert found.columns == roster.CANVAS
    assert found.column("ring") == "Assignment 1: Ring (4711)"
    assert found.column("ddp") == "DDP from scratch (4712)"
    assert found.column("say") == "say"  # a word, not a part of one


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(";", ",").replace(",", ";").replace("; ", ", "),
        lambda text: (
            text.replace("Student,", "LastName,FirstName,", 1)
            .replace('"Ahlgren, Anna"', "Ahlgren,Anna")
            .replace('"Bär, Bert"', "Bär,Bert")
            .replace('"Coe, Carl"', "Coe,Carl")
            .replace('"Student, Test",999', "Student,Test,")
            .replace("    Points Possible", "    Points Possible,")
            .replace("\n,,", "\n,,,")
        ),
        lambda text: re.sub(
            '(?m)^((?:[^,"]*|"[^"]*")(?:,[^,]*){3})', r"\1,", text
        ).replace("SIS Login ID,,", "SIS Login ID,Integration ID,"),
    ],
    ids=["semicolons", "first and last names", "integration ids"],
)
def test_other_forms_of_the_export(change, tmp_path):
    text = change(EXPORT)
    assert text != EXPORT
    people = read(text, tmp_path).people
    told = [(p.id, p.name, p.canvas, p.section) for p in people]
    assert told[:2] == [
        ("anna", "Ahlgren, Anna", "101", "Tuesday"),
        ("bert", "Bär, Bert", "102", "Friday"),
    ]


def test_a_login_may_be_an_address_of_mail(tmp_path):
    found = read(EXPORT.replace(",anna,", ",anna@example.org,"), tmp_path)
    assert found.people[0].email == "anna@example.org"
    assert found.find("anna") == found.people[0]


def test_of_two_columns_with_its_name_an_assignment_has_neither(tmp_path):
    found = read(EXPORT.replace("Essay (4713)", "Ring again (4713)"), tmp_path)
    assert found.column("ring") == "ring"


def test_a_table_is_a_roster(tmp_path):
    anna, bert = read(TABLE, tmp_path).people
    assert anna == Person("anna", "Ahlgren", "Anna", "anna@example.org", "Tuesday")
    moodle = "First name,Surname,ID number,Email address,Groups\n"
    moodle += "Anna,Ahlgren,7,a@b.c,Friday\n"
    (person,) = read(moodle, tmp_path).people
    assert person == Person("7", "Ahlgren", "Anna", "a@b.c", "Friday", "7")
    assert read(moodle, tmp_path).find("a") == person  # of a@b.c
    moodle = moodle.replace("Surname", "Username,Surname").replace("Anna,", "Anna,x,")
    (person,) = read(moodle, tmp_path).people
    assert (person.id, person.number) == ("x", "7")


@pytest.mark.parametrize(
    "text",
    [TABLE.replace(",", "\t"), TABLE.replace(",", " , "), f"{TABLE}\n\n"],
    ids=["tabs", "spaces", "empty lines"],
)
def test_a_table_may_be_written_by_hand(text, tmp_path):
    assert read(text, tmp_path) == read(TABLE, tmp_path)


def test_a_name_that_two_have_is_nobodys(tmp_path):
    found = read("id,email\n1,anna@a.org\n2,anna@b.org\n", tmp_path)
    assert found.find("anna") is None and found.find("anna@b.org").id == "2"


@pytest.mark.parametrize(
    "text, says",
    [
        ("name\nAnna\n", "a row without an id; its columns: id, last_name"),
        (TABLE + "anna,Two,Anna,,\n", "roster.csv: anna is there more than once"),
    ],
)
def test_what_is_no_roster_is_told(text, says, tmp_path):
    with pytest.raises(SystemExit, match=says):
        read(text, tmp_path)


def test_without_a_file_the_roster_is_empty(tmp_path):
    assert roster.read(tmp_path / "roster.csv") == Roster()


@pytest.mark.parametrize("name", ["anna", "s0011", "101"])
def test_a_folder_may_have_any_of_a_students_names(name, tmp_path):
    assert read(EXPORT, tmp_path).find(name).id == "anna"
    assert read(EXPORT, tmp_path).find("Anna") is None


# --- the files ---


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """Return the file of a gradebook: ring was due long ago, ddp has no due date."""
    path = tmp_path_factory.mktemp("book") / "gradebook.db"
    begin_gradebook(path)
    with Gradebook(f"sqlite:///{path}") as gradebook:
        for name, due in (("ring", DUE), ("ddp", None)):
            gradebook.add_assignment(name, duedate=due)
            gradebook.add_notebook(name, name)
            for cell, points in (("right", 6), ("bytes_sent", 4)):
                known = {"max_score": points, "cell_type": "code"}
                gradebook.add_grade_cell(cell, name, name, **known)
    return path


@pytest.fixture
def book(empty, tmp_path, monkeypatch):
    """Return a gradebook of this test's own."""
    monkeypatch.setattr(grades, "COURSE", tmp_path)
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty, tmp_path)
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        yield gradebook


def hand_in(gradebook, student: str, assignment: str, late: float = 0, **scores):
    """Hand in so many days late; None for a score leaves it to a person."""
    gradebook.update_or_create_student(student)
    known = {"timestamp": DUE + timedelta(days=late)}
    gradebook.update_or_create_submission(assignment, student, **known)
    for cell, score in ({"right": 6, "bytes_sent": 4} | scores).items():
        grade = gradebook.find_grade(cell, assignment, assignment, student)
        grade.auto_score, grade.needs_manual_grade = score, score is None
    gradebook.db.commit()


def written(gradebook, people: Roster, **policy) -> list[str]:
    return grades.write(gradebook, people, LateDays(**policy))


def test_due_dates_are_lines_of_a_file(book, tmp_path):
    path = tmp_path / "due.txt"
    path.write_text(
        "# of the term\nring 2026-03-06 23:59 Europe/Berlin\nx 2026-01-01 UTC\n"
    )
    roster.enter_due(book, path)
    assert book.find_assignment("ring").duedate == datetime(2026, 3, 6, 22, 59)
    for line in ("ring soon", "ring 2026-03-06 23:59 Nowhere/Else", "ring 2026-03-06"):
        path.write_text(line)
        with pytest.raises(SystemExit, match="is no line as in"):
            roster.enter_due(book, path)


def test_the_feedback_knows_a_due_date_that_has_moved(book, tmp_path, monkeypatch):
    hand_in(book, "anna", "ring", 3)
    path = tmp_path / "due.txt"
    path.write_text("ring 2024-03-06 12:00 UTC")
    now = functools.partial(roster.enter_due, path=path)
    monkeypatch.setattr(roster, "enter_due", now)
    url = book.db.get_bind().url.render_as_string()
    settle = Settle(config=Config({"LateDays": {"percent_per_day": 5}}))
    settle.preprocess(None, {"nbgrader": {"db_url": url}})
    with Gradebook(url) as another:
        assert another.find_submission("ring", "anna").late_submission_penalty == 0.5


def test_grading_tells_who_is_strange_and_who_is_absent(
    book, tmp_path, monkeypatch, capsys
):
    people, known = read(TABLE, tmp_path), []

    def grade(name, students, enter):
        enter()
        with Gradebook(book.db.get_bind().url.render_as_string()) as gradebook:
            known.extend(student.last_name for student in gradebook.students)

    monkeypatch.setattr(extras, "COURSE", tmp_path)
    monkeypatch.setattr(extras.roster, "read", lambda: people)
    monkeypatch.setattr(extras.engine, "students", lambda name: ["anna", "zoe"])
    monkeypatch.setattr(extras.engine, "grade", grade)
    extras.grade("ring", [])
    assert sorted(known) == ["Ahlgren", "Bär"]  # before anybody is judged
    assert capsys.readouterr().out.splitlines() == [
        "not on the roster: zoe",
        "nothing has come from bert",
    ]


def test_canvas_gets_back_what_it_gave(book, tmp_path):
    people = read(EXPORT, tmp_path)
    hand_in(book, "anna", "ring", bytes_sent=0)
    hand_in(book, "anna", "ddp")
    hand_in(book, "102", "ring", right=None)  # by a name that Canvas knows, and blocked
    hand_in(book, "s0013", "ddp")
    roster.enter(people, book)
    said = written(book, people)
    assert said[0] == "grades.csv: 4 rows" and len(said) == 3
    ring, ddp = "Assignment 1: Ring (4711)", "DDP from scratch (4712)"
    assert as_canvas((tmp_path / "grades.csv").read_text()) == (
        [ddp, ring],
        {ring: "10", ddp: "10"},
        {
            "101": {ring: "6", ddp: "EX"},  # who is excused stays so
            "102": {ring: "7", ddp: ""},  # what Canvas has had, until there is a grade
            "103": {ring: "0", ddp: "10"},  # no ring came, and it was due
        },
    )
    head = (tmp_path / "grades.csv").read_text().splitlines()
    assert head[1].startswith("    Points Possible,")
    assert head[2].startswith('"Ahlgren, Anna",101,s0011,anna,Tuesday,')
    moodle = as_moodle((tmp_path / "grades-moodle.csv").read_bytes(), "ID number")
    assert [*moodle] == ["s0011", "00012", "s0013"]  # the school's own
    details = (tmp_path / "grades-details.csv").read_text().splitlines()
    assert details[1] == 'anna,"Ahlgren, Anna",Tuesday,ddp,10,10,,0,0'
    assert details[-1] == 'carl,"Coe, Carl",Tuesday,ring,0,10,,0,0'


def test_canvas_gets_back_the_columns_that_it_has(book, tmp_path):
    with_more = EXPORT.replace("SIS Login ID,", "SIS Login ID,Integration ID,")
    written(book, read(with_more, tmp_path))
    assert "SIS Login ID,Integration ID," in (tmp_path / "grades.csv").read_text()


def test_moodle_can_map_a_column_to_the_student(book, tmp_path):
    people = read(TABLE, tmp_path)
    hand_in(book, "anna", "ring")
    roster.enter(people, book)
    written(book, people)
    data = (tmp_path / "grades-moodle.csv").read_bytes()
    for mapped, anna, bert in (
        ("ID number", "anna", "bert"),
        ("Email address", "anna@example.org", "bert@example.org"),
    ):
        assert as_moodle(data, mapped) == {
            anna: {"ring": "10", "ddp": ""},
            bert: {"ring": "0", "ddp": ""},
        }
    assert "Bär".encode() in data


def test_a_column_with_a_gap_is_not_for_mapping(book, tmp_path):
    people = read(TABLE.replace("bert@example.org", ""), tmp_path)
    written(book, people)
    head = (tmp_path / "grades-moodle.csv").read_text().splitlines()[0]
    assert head == "ID number,Username,Last name,First name,ddp,ring"


def test_without_a_roster_who_has_handed_in_is_there(book, tmp_path):
    hand_in(book, "bert", "ring", right=1.5)
    hand_in(book, "anna", "ring")
    book.update_or_create_student("anna", last_name="Ahlgren", first_name="Anna")
    assert len(written(book, Roster())) == 3
    text = (tmp_path / "grades.csv").read_text()
    titles, points, students = as_canvas(text)
    assert points == {"ring": "10", "ddp": "10"}
    assert [*students.items()] == [
        ("anna", {"ring": "10", "ddp": ""}),
        ("bert", {"ring": "5.5", "ddp": ""}),
    ]
    assert text.splitlines()[2].startswith('"Ahlgren, Anna",')


def test_who_is_not_on_the_roster_is_told(book, tmp_path):
    hand_in(book, "zoe", "ring")
    said = written(book, read(TABLE, tmp_path))
    assert said[3:] == ["zoe is not on the roster: only in the details"]
    assert "zoe" not in (tmp_path / "grades-moodle.csv").read_text()  # it would end it
    assert "zoe" not in (tmp_path / "grades.csv").read_text()
    assert "zoe,,,ring,10,10," in (tmp_path / "grades-details.csv").read_text()


def test_an_extension_is_no_submission(book, tmp_path):
    book.add_student("anna")
    book.update_or_create_submission("ring", "anna")
    book.grant_extension("ring", "anna", weeks=9999)
    written(book, Roster())
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == ""
    book.grant_extension("ring", "anna", days=1)
    written(book, Roster())
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == "0"


def test_what_is_blocked_altogether_is_not_zero(book, tmp_path):
    hand_in(book, "anna", "ring", right=None, bytes_sent=None)
    (tmp_path / "submitted" / "anna" / "ring").mkdir(parents=True)
    written(book, Roster())
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == ""


def test_a_grade_by_hand_ends_the_waiting(book, tmp_path):
    hand_in(book, "anna", "ring", bytes_sent=None)
    written(book, Roster())
    lines = csv.DictReader((tmp_path / "grades-details.csv").open())
    (ring,) = (line for line in lines if line["assignment"] == "ring")
    assert (ring["blocked"], ring["score"], ring["max"]) == ("bytes_sent", "6", "6")
    grade = book.find_grade("bytes_sent", "ring", "ring", "anna")
    grade.manual_score = 3  # and still marked, as nbgrader does after a second grading
    book.db.commit()
    written(book, Roster())
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == "9"


def test_the_formgrader_knows_everybody_by_name(book, tmp_path):
    hand_in(book, "102", "ring")
    roster.enter(read(EXPORT, tmp_path), book)
    told = {s.id: (s.last_name, s.first_name) for s in book.students}
    assert told == {
        "anna": ("Ahlgren", "Anna"),
        "102": ("Bär", "Bert"),
        "carl": ("Coe", "Carl"),
    }


# --- late days ---


def lateness(gradebook, **policy) -> dict[str, Lateness]:
    return LateDays(**policy).lateness(gradebook, "anna")


@pytest.mark.parametrize(
    "late, policy, expected",
    [
        (0.01, {"percent_per_day": 10}, Lateness(1, 0, 1)),
        (2, {"percent_per_day": 10}, Lateness(2, 0, 2)),
        (2.5, {"percent_per_day": 10, "free_days": 2}, Lateness(3, 2, 1)),
        (2, {"percent_per_day": 10, "free_days": 4}, Lateness(2, 2, 0)),
        (2, {"percent_per_day": 10, "most_days": 2}, Lateness(2, 0, 2)),
        (
            2.1,
            {"percent_per_day": 10, "most_days": 2, "free_days": 9},
            Lateness(3, 0, 7),
        ),
        (30, {"percent_per_day": 10}, Lateness(30, 0, 7)),  # no points below zero
        (1, {"percent_per_day": 15}, Lateness(1, 0, 1.5)),
        (0.1, {"most_days": 0, "free_days": 9}, Lateness(1, 0, 7)),
        (3, {}, Lateness(3, 0, 0)),
    ],
)
def test_what_late_days_cost(late, policy, expected, book):
    hand_in(book, "anna", "ring", late, bytes_sent=1)
    assert lateness(book, **policy) == {"ring": expected}


@pytest.mark.parametrize("first", ["ring", "ddp"])
def test_free_days_go_to_what_was_due_first(first, book):
    book.update_or_create_assignment("ddp", duedate=DUE + timedelta(days=7))
    late = {"ring": 3, "ddp": 7 + 2}  # days after DUE, in whichever order they come
    hand_in(book, "anna", first, late.pop(first))
    for other, days in late.items():
        hand_in(book, "anna", other, days)
    found = lateness(book, free_days=4, percent_per_day=10)
    assert found == {"ring": Lateness(3, 3, 0), "ddp": Lateness(2, 1, 1)}


def test_what_is_too_late_takes_no_free_days(book):
    book.update_or_create_assignment("ddp", duedate=DUE + timedelta(days=7))
    hand_in(book, "anna", "ring", 30)
    hand_in(book, "anna", "ddp", 7 + 2)
    found = lateness(book, free_days=2, most_days=3)
    assert found == {"ring": Lateness(30, 0, 10), "ddp": Lateness(2, 2, 0)}


def test_who_is_not_late_has_nothing_to_settle(book):
    hand_in(book, "anna", "ring", -1)
    hand_in(book, "anna", "ddp", 40)  # it has no due date
    assert lateness(book, percent_per_day=10) == {}
    book.grant_extension("ddp", "anna", days=1)  # nor has it then
    assert lateness(book, percent_per_day=10) == {}


def test_no_rounding_leaves_less_than_nothing(book, tmp_path):
    hand_in(book, "anna", "ring", 30, right=2 / 3, bytes_sent=0)
    written(book, Roster(), percent_per_day=10)
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == "0"


def test_what_is_settled_is_in_the_gradebook(book):
    hand_in(book, "anna", "ring", 3)
    LateDays(percent_per_day=5).settle(book)
    with Gradebook(book.db.get_bind().url.render_as_string()) as another:
        assert another.find_submission("ring", "anna").late_submission_penalty == 1.5


def test_nbgrader_asks_for_the_penalty_of_what_it_grades(book):
    hand_in(book, "anna", "ring", 3)
    grading = NbGraderPreprocessor()
    grading.gradebook, grading.assignment_id = book, "ring"
    policy = LateDays(parent=grading, percent_per_day=10)
    assert policy.late_submission_penalty("anna", 10, 3 * 86_400) == 3


def test_penalties_are_in_the_files_and_go_with_an_extension(book, tmp_path):
    hand_in(book, "anna", "ring", 3)
    policy = {"free_days": 1, "percent_per_day": 10}
    written(book, Roster(), **policy)
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == "8"
    details = (tmp_path / "grades-details.csv").read_text()
    assert "anna,,,ring,8,10,,3,2" in details
    assert book.find_submission("ring", "anna").late_submission_penalty == 2
    book.grant_extension("ring", "anna", days=3)
    written(book, Roster(), **policy)
    assert as_canvas((tmp_path / "grades.csv").read_text())[2]["anna"]["ring"] == "10"
    assert book.find_submission("ring", "anna").late_submission_penalty in (None, 0)


@pytest.mark.parametrize(
    "known, says",
    [
        (Lateness(1, 0, 1.5), "Handed in 1 day late: −1.5 points."),
        (Lateness(3, 2, 1), "Handed in 3 days late, of which 2 free: −1 points."),
        (Lateness(2, 2, 0), "Handed in 2 days late, of which 2 free: no penalty."),
    ],
)
def test_what_the_feedback_says_of_it(known, says):
    assert str(known) == says

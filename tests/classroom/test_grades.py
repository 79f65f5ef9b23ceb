"""Roster in, grades out: files as Canvas writes and reads them."""

import csv
import io
import re
import shutil
from datetime import datetime

import pytest

pytest.importorskip("nbgrader", reason="the lessons do without it")

from nbgrader.api import Gradebook  # noqa: E402

from classroom.engine.__main__ import begin_gradebook, config  # noqa: E402
from classroom.extras import grades, roster  # noqa: E402
from classroom.extras.roster import Roster  # noqa: E402

pytestmark = pytest.mark.sandbox

# As Canvas writes it: a note about posting, the points, its own student, a total.
EXPORT = """\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,\
Assignment 1: Ring (4711),DDP from scratch (4712),Essay (4713),Current Score
,,,,,Manual Posting,,,
    Points Possible,,,,,10,10,5,(read only)
"Ahlgren, Anna",101,s0011,anna@example.org,Tuesday,,EX,4,80
"Bär, Bert",102,00012,bert,Friday,7,,,
"Coe, Carl",103,s0013,carl,Tuesday,,,,
"Student, Test",999,,f00ba4,Tuesday,,,,
"""
RING, DDP = "Assignment 1: Ring (4711)", "DDP from scratch (4712)"
TABLE = """id,last_name,first_name,email,section
anna,Ahlgren,Anna,anna@example.org,Tuesday
bert,Bär,Bert,,Friday
"""


def read(text: str, folder) -> Roster:
    path = folder / "roster.csv"
    path.write_text(text, encoding="utf-8")
    return roster.read(path)


# --- the roster ---


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace(";", ",").replace(",", ";").replace("; ", ", "),
        lambda text: (
            text.replace("Login ID,", "Login ID,Root Account,", 1)
            .replace(",anna@example.org,", ",anna@example.org,school,")
            .replace(",bert,", ",bert,school,")
        ),
    ],
    ids=["as it is", "semicolons", "another column"],
)
def test_canvas_own_export_is_a_roster(change, tmp_path):
    anna, bert = read(change(EXPORT), tmp_path).people[:2]
    assert (anna["last_name"], anna["first_name"]) == ("Ahlgren", "Anna")
    assert (bert["id"], bert["name"], bert["section"]) == (
        "bert",
        "Bär, Bert",
        "Friday",
    )


@pytest.mark.parametrize("text", [TABLE, TABLE.replace(",", " , "), f"{TABLE}\n,,,,\n"])
def test_a_table_is_a_roster(text, tmp_path):
    anna, bert = read(text, tmp_path).people
    assert (bert["id"], bert["name"], bert["section"]) == (
        "bert",
        "Bär, Bert",
        "Friday",
    )
    assert (anna["email"], anna["SIS Login ID"]) == ("anna@example.org", "anna")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name\nAnna\n", "neither Canvas's export nor a table with an id in each row"),
        (TABLE + ",Coe,Carl,,\n", "with an id in each row"),
        (TABLE + "anna,Two,Anna,,\n", "roster.csv: anna is there more than once"),
    ],
)
def test_what_is_no_roster_is_told(text, says, tmp_path):
    with pytest.raises(SystemExit, match=says):
        read(text, tmp_path)


def test_a_folder_may_have_any_of_a_student_s_names(tmp_path):
    found = read(EXPORT, tmp_path)
    for name in ("anna", "anna@example.org", "s0011", "101"):
        assert found.find(name) == found.people[0]
    assert found.find("Anna") is found.find("") is None
    two = read("id,email\n1,anna@a.org\n2,anna@b.org\n", tmp_path)
    assert two.find("anna") is None and two.find("anna@b.org")["id"] == "2"


def test_canvas_s_names_of_files_tell_whose_they_are():
    """As lib/content_zipper.rb of canvas-lms makes them, for nbgrader's zip_collect."""
    pattern = config().FileNameCollectorPlugin.named_regexp
    for file in "doejane_42_9876_gpt3d.ipynb", "x_doe_LATE_42_9876_gpt3d-1.ipynb":
        found = re.match(pattern, file)
        assert found and found.groupdict() == {"student_id": "42", "file_id": "gpt3d"}


def test_an_assignment_has_the_only_column_with_its_name_as_a_word(tmp_path):
    found = read(EXPORT, tmp_path)
    assert (found.title("ring"), found.title("say")) == (RING, "say")
    found = read(EXPORT.replace("Essay", "Ring again"), tmp_path)
    assert found.title("ring") == "ring"


# --- the files ---


def as_canvas(text: str) -> tuple[dict[str, str], dict[str, dict]]:
    """Read a file as Canvas does: lib/gradebook_importer.rb of canvas-lms.

    Returns:
        The points of the assignments, and the grades by SIS User ID.
    """
    head, points, *rows = csv.reader(io.StringIO(text, newline=""))
    assert head[:5] == roster.CANVAS and "Points Possible" in points[0]
    for cell in [*points[5:], *(cell for row in rows for cell in row[5:])]:
        assert cell in ("", "EX") or re.fullmatch(r"[0-9.]+", cell), cell
    students = {row[2]: dict(zip(head[5:], row[5:], strict=True)) for row in rows}
    return dict(zip(head[5:], points[5:], strict=True)), students


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """Return the file of a gradebook that knows two assignments."""
    path = tmp_path_factory.mktemp("book") / "gradebook.db"
    begin_gradebook(path)
    with Gradebook(f"sqlite:///{path}") as gradebook:
        for name in ("ring", "ddp"):
            gradebook.add_assignment(name, duedate=datetime(2024, 3, 4, 12))
            gradebook.add_notebook(name, name)
            for cell, points in (("right", 6), ("bytes_sent", 4)):
                known = {"max_score": points, "cell_type": "code"}
                gradebook.add_grade_cell(cell, name, name, **known)
    return path


@pytest.fixture
def book(empty, tmp_path, monkeypatch):
    """Return a gradebook of this test's own."""
    monkeypatch.setattr(grades, "COURSE", tmp_path)
    shutil.copy(empty, tmp_path)
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        yield gradebook


def hand_in(gradebook, student: str, assignment: str, **scores) -> None:
    """Grade what was handed in; None for a score leaves it to a person."""
    gradebook.update_or_create_student(student)
    gradebook.update_or_create_submission(assignment, student)
    for cell, score in ({"right": 6, "bytes_sent": 4} | scores).items():
        grade = gradebook.find_grade(cell, assignment, assignment, student)
        grade.auto_score, grade.needs_manual_grade = score, score is None
    gradebook.db.commit()


def written(gradebook, people: Roster, folder) -> dict[str, dict]:
    """Return the grades for Canvas by SIS User ID, or what stands for it."""
    grades.write(gradebook, people)
    return as_canvas((folder / "grades.csv").read_text())[1]


def details(folder, student: str, assignment: str) -> list[str]:
    """Return score, maximum and blocked criteria."""
    rows = csv.DictReader((folder / "grades-details.csv").open())
    (row,) = (
        r for r in rows if (r["student"], r["assignment"]) == (student, assignment)
    )
    return [row["score"], row["max"], row["blocked"]]


def test_canvas_gets_back_what_it_gave(book, tmp_path):
    hand_in(book, "anna", "ring", bytes_sent=0)
    hand_in(book, "anna", "ddp")
    hand_in(book, "102", "ring", right=None)  # by a name that Canvas knows, and blocked
    hand_in(book, "s0013", "ddp")
    assert len(grades.write(book, read(EXPORT, tmp_path))) == 2
    assert as_canvas((tmp_path / "grades.csv").read_text()) == (
        {RING: "10", DDP: "10"},
        {
            "s0011": {RING: "6", DDP: "EX"},  # who is excused stays so
            "00012": {RING: "7", DDP: ""},  # what Canvas has had, while it is blocked
            "s0013": {RING: "", DDP: "10"},
        },
    )
    lines = (tmp_path / "grades.csv").read_text().splitlines()
    assert lines[1].startswith("    Points Possible,")
    assert lines[2].startswith('"Ahlgren, Anna",101,s0011,anna@example.org,Tuesday,')
    assert details(tmp_path, "bert", "ring") == ["4", "4", "right"]
    assert details(tmp_path, "carl", "ring") == ["", "10", ""]
    assert book.find_student("102").last_name == "Bär"  # in the Formgrader


def test_without_a_roster_who_was_graded_is_there(book, tmp_path):
    hand_in(book, "bert", "ring", right=1.5)
    book.update_or_create_student("anna", last_name="Ahlgren", first_name="Anna")
    assert written(book, Roster(), tmp_path) == {
        "anna": {"ring": "", "ddp": ""},
        "bert": {"ring": "5.5", "ddp": ""},
    }
    assert '\n"Ahlgren, Anna",,anna,' in (tmp_path / "grades.csv").read_text()


def test_who_is_not_on_the_roster_is_told(book, tmp_path):
    hand_in(book, "zoe", "ring")
    said = grades.write(book, read(TABLE, tmp_path))
    assert said[2:] == ["zoe is not on the roster: only in the details"]
    assert "zoe" not in (tmp_path / "grades.csv").read_text()
    assert details(tmp_path, "zoe", "ring") == ["10", "10", ""]


def test_what_is_blocked_waits_for_a_grade_by_hand(book, tmp_path):
    hand_in(book, "anna", "ddp", right=None, bytes_sent=None)
    hand_in(book, "anna", "ring", bytes_sent=None)
    assert written(book, Roster(), tmp_path)["anna"] == {"ring": "", "ddp": ""}
    assert details(tmp_path, "anna", "ddp") == ["", "0", "right bytes_sent"]
    assert details(tmp_path, "anna", "ring") == ["6", "6", "bytes_sent"]
    grade = book.find_grade("bytes_sent", "ring", "ring", "anna")
    grade.manual_score = 3  # and still marked, as nbgrader does after a second grading
    book.db.commit()
    assert written(book, Roster(), tmp_path)["anna"] == {"ring": "9", "ddp": ""}


def test_nbgrader_s_own_extensions_and_penalties_count(book, tmp_path):
    book.add_student("anna")
    book.update_or_create_submission("ring", "anna")
    book.grant_extension("ring", "anna", days=1)  # makes an entry: nothing came yet
    assert written(book, Roster(), tmp_path)["anna"]["ring"] == ""
    hand_in(book, "anna", "ring")
    book.find_submission("ring", "anna").notebooks[0].late_submission_penalty = 2.5
    book.db.commit()
    assert written(book, Roster(), tmp_path)["anna"]["ring"] == "7.5"

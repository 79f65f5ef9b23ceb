"""What is handed in may be anything: it is read in bounds, and waited for never."""

import json
import os
import socket
import time

import pytest
from course import RING, as_notebook, solution

from classroom.engine import judge

pytestmark = pytest.mark.sandbox
RIGHT = solution("ring")["ring.py"]
HEAD = "%%writefile build/classroom/ring.py\n"


def cell(source: str, grade_id: str | None = None, kind: str = "code") -> dict:
    known = {"nbgrader": {"grade_id": grade_id}} if grade_id else {}
    return {"cell_type": kind, "source": source, "metadata": known}


@pytest.fixture
def place(tmp_path):
    """Return where the notebook lies that a student hands in."""
    folder = tmp_path / "submitted" / "anna" / "ring"
    folder.mkdir(parents=True)
    return folder / "ring.ipynb"


def handed_in(place, *cells: dict) -> tuple[str | None, str]:
    """Return the program that is judged, and the note."""
    place.write_text(json.dumps({"cells": cells}))
    programs, note = judge.answers(place, RING.PROGRAMS)
    return programs.get("ring.py"), note


# --- of several cells, what `check` takes ---


def test_of_two_cells_the_last_counts_and_it_says_so(place):
    first, last = cell(HEAD + "1\n", "program"), cell(HEAD + "2\n", "program")
    note = "2 cells write ring.py: the last one counts"
    assert handed_in(place, first, last) == ("2\n", note)
    assert handed_in(place, cell(HEAD + "1\n"), last) == ("2\n", note)
    # It has lost its metadata, as after "copy" in some editors.
    assert handed_in(place, first, cell(HEAD + "2\n")) == ("2\n", note)
    assert handed_in(place, last, last) == ("2\n", "")


# --- what would take the judge minutes, or all of his memory ---

MANY = {
    "cells": [cell(HEAD + "1\n")] * 100_000,
    "characters": [cell(HEAD + "a\n" * 1_000_000)],
    "small cells": [cell("%%writefile -a build/classroom/ring.py\n" + "a\n" * 5000)]
    * 1000,
    "words": [cell("%%writefile " + "x y" * 1_000_000)] * 6,
}


@pytest.mark.parametrize("what", MANY)
def test_too_much_is_not_even_looked_at(place, what):
    start = time.process_time()
    program, note = handed_in(place, *MANY[what])
    assert not program and note
    assert time.process_time() - start < 3


def test_a_file_elsewhere_is_another_file(place):
    backup = cell("%%writefile old/ring.py\n1\n", "program")
    assert handed_in(place, cell(HEAD + "2\n"), backup) == ("2\n", "")
    # By the name of the cell, where that is all there is.
    assert handed_in(place, backup) == ("1\n", "")


def test_without_the_line_that_writes_it_the_cell_is_found_by_its_name(place):
    assert handed_in(place, cell("2\n", "program"), cell("3\n")) == ("2\n", "")
    assert handed_in(place, cell("3\n")) == (None, "no cell writes ring.py")


def test_a_cell_may_append(place):
    more = cell(HEAD.replace("file ", "file -a ") + "2\n")
    assert handed_in(place, cell(HEAD + "1\n"), more) == ("1\n2\n", "")


@pytest.mark.parametrize(
    "head",
    [f"\n  \n{HEAD}", HEAD.replace("build", "'build").replace(".py", ".py'")]
    + [HEAD.replace("write", ""), HEAD.replace("build", "/home/me/work/build")],
    ids=["after an empty line", "quoted", "by its other name", "absolute"],
)
def test_a_cell_is_found_however_jupyter_takes_it(place, head):
    assert handed_in(place, cell(f"{head}2\n")) == ("2\n", "")


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_prose_writes_nothing(place, kind):
    prose = cell(HEAD + "3\n", kind=kind)
    assert handed_in(place, cell(HEAD + "2\n"), prose) == ("2\n", "")


# --- files that are none ---


def linked(place):
    other = place.parents[2] / "other.ipynb"
    other.write_text(json.dumps(as_notebook("ring", solution("ring"))))
    place.symlink_to(other)


def linked_folder(place):
    other = place.parents[2] / "bert"
    other.mkdir()
    (other / place.name).write_text("{}")
    place.parent.rmdir()
    place.parent.symlink_to(other)


def listening(place):
    home = os.getcwd()
    os.chdir(place.parent)  # a socket's path is a short one
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.name)
    os.chdir(home)


def sparse(place):
    with open(place, "wb") as file:
        file.truncate(10 * 1024**3)


ODD = {
    "a link": (linked, "ring.ipynb is no plain file, but a link, say"),
    "a link to a device": (
        lambda place: place.symlink_to("/dev/zero"),
        "ring.ipynb is no plain file, but a link, say",
    ),
    "a folder that is a link": (linked_folder, "ring/ is a link, not a folder"),
    "a folder": (
        lambda place: place.mkdir(),
        "ring.ipynb is no plain file, but a link, say",
    ),
    "a pipe": (
        lambda place: os.mkfifo(place),
        "ring.ipynb is no plain file, but a link, say",
    ),
    "a socket": (listening, "ring.ipynb is no plain file, but a link, say"),
    "10 GB": (sparse, "ring.ipynb is larger than 20,000,000 bytes"),
    "a deep list": (
        lambda place: place.write_bytes(b'{"cells": ' + b"[" * 1_000_000),
        "ring.ipynb is not a notebook (RecursionError)",
    ),
    "no text": (
        lambda place: place.write_bytes(b"\xff" * 100),
        "ring.ipynb is not a notebook (UnicodeDecodeError)",
    ),
    "cells that are none": (
        lambda place: place.write_text('{"cells": [1, null]}'),
        "ring.ipynb is not a notebook (AttributeError)",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_notebook_has_one_sentence(place, name):
    make, said = ODD[name]
    make(place)
    assert judge.answers(place, RING.PROGRAMS) == ({}, said)


def test_what_is_replaced_while_we_look_is_not_followed(place, monkeypatch):
    linked(place)
    was = type(place).lstat(place.parents[2] / "other.ipynb")
    monkeypatch.setattr(type(place), "lstat", lambda path: was)  # a moment ago
    said = "ring.ipynb cannot be read (Too many levels of symbolic links)"
    assert judge.answers(place, RING.PROGRAMS) == ({}, said)


def test_half_a_character_is_a_character(place):
    text = handed_in(place, cell(f"{HEAD}x = '\ud83d'\n"))[0]
    assert text == "x = '?'\n" and text.encode()


def test_lines_may_be_a_list(place):
    lines = (HEAD + "1\n2\n").splitlines(keepends=True)
    assert handed_in(place, cell(lines)) == ("1\n2\n", "")


def test_what_may_not_be_read_has_one_sentence(place, monkeypatch):
    def refused(*args):
        raise PermissionError(13, "Permission denied")

    place.write_text("{}")
    monkeypatch.setattr(os, "open", refused)  # whoever is root may read everything
    said = "ring.ipynb cannot be read (Permission denied)"
    assert judge.answers(place, RING.PROGRAMS) == ({}, said)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_is_text_in_any_encoding_that_json_has(place, encoding, monkeypatch):
    text = f"{HEAD}ring = 'größer als … ✓'\n"
    data = json.dumps({"cells": [cell(text)]}, ensure_ascii=False)
    place.write_bytes(data.encode(encoding))
    programs, note = judge.answers(place, RING.PROGRAMS)
    assert (programs["ring.py"], note) == ("ring = 'größer als … ✓'\n", "")


# --- when it was handed in ---

STAMPS = {
    "2026-11-22 20:00:00.000000 UTC": "2026-11-22 20:00:00",
    "2026-11-22 21:00+01:00": "2026-11-22 20:00:00",
    "": None,
    "yesterday": None,
    "0001-01-01 00:00:00+23:00": None,
    "9" * 99: None,
    "\x00\x01": None,
}


@pytest.mark.parametrize("text", STAMPS, ids=repr)
def test_a_time_that_is_none_is_said_so_and_nothing_is_late(place, text):
    submission = pytest.importorskip("classroom.engine.submission")
    pytest.importorskip("nbgrader", reason="it reads the time")
    place.with_name("timestamp.txt").write_text(text)
    when, said = submission.stamp(place)
    assert (str(when) if when else None) == STAMPS[text]
    assert said == ("timestamp.txt holds no time" if text and not when else "")
    assert handed_in(place, cell(HEAD + "2\n")) == ("2\n", said)


def test_a_time_that_is_no_file_has_one_sentence(place):
    os.mkfifo(place.with_name("timestamp.txt"))
    said = "timestamp.txt is no plain file, but a link, say"
    assert handed_in(place, cell(HEAD + "2\n")) == ("2\n", said)

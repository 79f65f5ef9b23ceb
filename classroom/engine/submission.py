"""What a student has handed in, which may be anything: read without harm, in bounds.

Files are looked at and never followed: a link, a pipe or a device that stands where the
notebook should be is named in the report, and nothing waits for it.
"""

import json
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

WRITEFILE = "%%writefile"
WRITTEN = "build/classroom"
"""The folder, seen from the workplace, into which an assignment's cells write."""
BLANK = re.compile(r"\A(\s*\n)+")  # before a cell's first line
LARGEST_NOTEBOOK = 20_000_000  # bytes
CELLS_OF_A_NOTEBOOK = 2000
LARGEST_PROGRAM = 200_000  # characters; to parse it may take a thousand bytes for each
LONGEST_HEAD = 200  # characters of a cell's first line, as far as it is looked at
LARGEST_STAMP = 100  # bytes


class Unreadable(Exception):
    """A file that cannot be taken; its text is a sentence for the student."""


def read(path: Path, largest: int) -> bytes:
    """Return the bytes of a plain file, `largest` of them at most.

    Raises:
        Unreadable: if it is no plain file, too large, or not to be read.
        FileNotFoundError: if there is nothing.
    """
    try:
        if path.parent.is_symlink():
            raise Unreadable(f"{path.parent.name}/ is a link, not a folder")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise Unreadable(f"{path.name} is no plain file, but a link, say")
        # It may have been replaced meanwhile: no link is followed, no pipe waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags), "rb") as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read ({error.strerror})") from None
    if len(data) > largest:
        raise Unreadable(f"{path.name} is larger than {largest:,} bytes")
    return data


# --- programs ---


def answers(path: Path, wanted: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the programs in a submitted notebook, and what is wrong with the files.

    Of several cells that write one file the last counts, as for `check`. A cell is
    found by its `%%writefile` and, where that is gone, by its grade_id. What else the
    notebook holds does not matter.

    Args:
        path: of the notebook.
        wanted: the file of each program by the `grade_id` of its cell.
    """
    programs, notes = _programs(path, wanted)
    notes.append(stamp(path)[1])
    return programs, "; ".join(dict.fromkeys(filter(None, notes)))


def _programs(
    path: Path, wanted: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    try:
        cells = json.loads(read(path, LARGEST_NOTEBOOK))["cells"]
        prose = "markdown", "raw"  # which Jupyter does not run
        cells = [cell for cell in cells if cell.get("cell_type") not in prose]
        sources = [(_grade_id(cell), _source(cell)) for cell in cells]
    except FileNotFoundError:
        return {}, [f"there is no {path.name}"]
    except Unreadable as trouble:
        return {}, [str(trouble)]
    except Exception as error:  # it may be anything
        return {}, [f"{path.name} is not a notebook ({type(error).__name__})"]
    if len(cells) > CELLS_OF_A_NOTEBOOK:
        return {}, [f"{path.name} has more than {CELLS_OF_A_NOTEBOOK:,} cells"]
    programs: dict[str, str] = {}
    notes = []
    for grade_id, file in wanted.items():
        texts = _written(sources, file) or [t for g, t in sources if g == grade_id]
        if texts:
            programs[file] = _body(texts[-1])
            if len(programs[file]) > LARGEST_PROGRAM:
                programs[file] = ""
                notes.append(f"{file} has more than {LARGEST_PROGRAM:,} characters")
        if len(set(texts)) > 1:
            notes.append(f"{len(texts)} cells write {file}: the last one counts")
    if missing := [file for file in wanted.values() if file not in programs]:
        notes.append(f"no cell writes {', '.join(missing)}")
    return programs, notes


def _written(sources: Sequence[tuple[str | None, str]], file: str) -> list[str]:
    """Return the texts that cells write into `file`, in order."""
    texts: list[str] = []
    for _, text in sources:
        path, appends = _target(text)
        if path and path.parts[-3:] == (*PurePosixPath(WRITTEN).parts, file):
            if appends and texts:
                if len(texts[-1]) <= LARGEST_PROGRAM:
                    texts[-1] += _body(text)
            else:
                texts.append(_body(text))
    return texts


def _target(text: str) -> tuple[PurePosixPath | None, bool]:
    """Return which file a cell writes, if any, and whether it appends to it."""
    head = text[:LONGEST_HEAD].partition("\n")[0]
    if not head.startswith((WRITEFILE, "%%file")):
        return None, False
    try:
        words = shlex.split(head)[1:]
    except ValueError:  # a quotation that does not end
        return None, False
    names = [word for word in words if not word.startswith("-")]
    appends = "-a" in words or "--append" in words
    return (PurePosixPath(names[0]) if names else None), appends


def _body(text: str) -> str:
    """Return a program without the line that writes it."""
    head, _, rest = text.partition("\n")
    return rest if head.startswith("%%") else text


def _grade_id(cell: dict) -> str | None:
    known = cell.get("metadata", {}).get("nbgrader", {})
    return known.get("grade_id") if isinstance(known, dict) else None


def _source(cell: dict) -> str:
    source = cell.get("source", "")
    text = "".join(source) if isinstance(source, list) else str(source)
    text = text.encode("utf-8", "replace").decode()  # half a character, say
    return BLANK.sub("", text)


# --- when ---


def stamp(path: Path) -> tuple[datetime | None, str]:
    """Return when a notebook was handed in, in UTC, and what is wrong with that.

    nbgrader's collection leaves the time in `timestamp.txt` beside the notebook; where
    there is none, or none that can be read, nothing is late.
    """
    file = path.with_name("timestamp.txt")
    try:
        text = read(file, LARGEST_STAMP).decode().strip()
        if not text:
            return None, ""

        from nbgrader.utils import parse_utc

        return parse_utc(text), ""
    except FileNotFoundError:
        return None, ""
    except Unreadable as trouble:
        return None, str(trouble)
    except Exception:  # it may be anything
        return None, f"{file.name} holds no time"

"""Read the files that a run left, so that what is in them can be shown on a page."""

import json
import os
import re
from pathlib import Path
from typing import Any

MOST_READ = 1_000_000  # bytes, from either end of a file
# What a terminal or a browser would obey, and what nobody could see.
CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colors, movements of the cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u202a-\u202e\u2066-\u2069]"  # text that runs the other way
    r"|[\u200b\u2060\ufeff\ufff9-\ufffb]"  # of no width; U+200C and U+200D join emoji
)
SEPARATOR = re.compile("[\x85\u2028\u2029]")  # ends a line, for whoever reads lines
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character cannot be written


def clean(text: str) -> str:
    """Return `text` without anything that a page would obey instead of showing it."""
    text = SEPARATOR.sub(" ", text)
    return SURROGATE.sub("\ufffd", CONTROL.sub("", text))


def clip(text: str, most: int = 20_000) -> str:
    """Return `text`; if it is longer than `most`, its two ends."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... left out ...\n{text[-most // 2 :]}"


def shorten(text: str, width: int = 140) -> str:
    """Return `text`; if it is longer than `width`, its first words."""
    if len(text) <= width:
        return text
    words, _, rest = text[:width].rpartition(" ")
    return (words if len(rest) < width // 2 else text[: width - 1]) + "…"


def entries(folder: Path) -> list[str]:
    """Return what is in `folder`; nothing if it is none, or none any more."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def read(path: Path, limit: int = MOST_READ) -> str:
    """Return the text of `path`; of a long one the two ends, `limit` bytes each."""
    try:
        with open(path, "rb") as file:
            data = file.read(2 * limit + 1)
            if len(data) > 2 * limit:
                size = file.seek(0, 2)
                file.seek(size - limit)
                gap = f"\n... {size - 2 * limit:,} bytes left out ...\n".encode()
                data = data[:limit] + gap + file.read(limit)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # not written yet, or removed
    lines = data.decode("utf-8", errors="replace").split("\n")
    # Of a progress bar, which draws over itself, the last state counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return clean("\n".join(lines))


def read_json(path: Path) -> Any:
    """Return what the JSON file at `path` holds; None if it cannot be read."""
    try:
        return _cleaned(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError):
        return None  # missing, or half-written because the rank was ended just then


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        return {name: _cleaned(each) for name, each in value.items()}
    return value

"""The programs that the cells of this kernel have written, by path.

Another notebook, an editor or a second copy of the same lesson may write them, too.
"""

import os
from collections.abc import Sequence
from pathlib import Path

texts: dict[str, str] = {}
"""What was written last; "" if the cell was refused, and the file is an older one."""


def write(path: str, text: str) -> None:
    """Write a program for good: whoever reads it meanwhile reads a whole one."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_bytes(text.encode())
    part.replace(file)
    texts[path] = text


def refused(words: Sequence[str]) -> list[str]:
    """Return the programs among `words` whose cell was refused."""
    return [path for path in words if texts.get(path) == ""]


def changed(words: Sequence[str]) -> list[str]:
    """Return the programs among `words` that are not as they were written here."""
    known = [path for path in words if texts.get(path) and Path(path).is_file()]
    return [path for path in known if Path(path).read_bytes() != texts[path].encode()]

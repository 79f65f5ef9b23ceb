"""The programs that the cells of this kernel have written, by path.

Another notebook, or a second copy of the same lesson, may write them, too.
"""

import os
from pathlib import Path

from IPython.core.error import UsageError

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


def refuse(path: str) -> None:
    """Refuse to look at a program whose cell was refused: the file is an older one.

    Raises:
        UsageError: with what helps.
    """
    if texts.get(path) == "":
        reason = "the cell that writes it was refused; mend it, and run it again"
        raise UsageError(f"{path} was not run: {reason}")


def is_changed(path: str) -> bool:
    """Return whether a program is not as this kernel has written it."""
    text, file = texts.get(path, ""), Path(path)
    return text != "" and file.is_file() and file.read_bytes() != text.encode()

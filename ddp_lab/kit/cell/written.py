"""The programs that the cells of this kernel have written, by path.

Another notebook, or a second copy of the same lesson, may write them, too.
"""

import os
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


def is_changed(path: str) -> bool:
    """Return whether a program is not as this kernel has written it."""
    text, file = texts.get(path, ""), Path(path)
    return text != "" and file.is_file() and file.read_bytes() != text.encode()

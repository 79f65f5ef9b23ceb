"""Write the programs of cells, and know those whose last cell was refused."""

import os
from pathlib import Path

refused: set[str] = set()
"""Paths of programs whose last cell was refused in this kernel: the file is older."""


def write(path: str, text: str) -> None:
    """Write a program for good: whoever reads it meanwhile reads a whole one."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_bytes(text.encode())
    part.replace(file)
    refused.discard(path)

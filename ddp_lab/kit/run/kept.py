"""Keep output that is too long to be shown, until later runs need the place."""

import os
import shutil
import tempfile
from pathlib import Path

from ddp_lab.kit import say


def second_home() -> Path:
    """Return where output is kept if the repository is not ours to write in."""
    return Path(tempfile.gettempdir(), f"ddp_lab-logs-{os.getuid()}")


def keep(
    files: dict[str, Path], prefix: str, most: int, home: Path
) -> tuple[Path | None, str]:
    """Move files to a new folder; return it, and what could not be done.

    Args:
        files: by the name that each shall have.
        prefix: with what the new folder's name begins.
        most: how many folders may be there, the new one included.
        home: where to make it; elsewhere if that cannot be written to.
    """
    trouble = ""
    for place in (home, second_home()):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in _newest_first(place)[most - 1 :]:
                shutil.rmtree(old, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        except OSError as error:
            trouble = trouble or f"{error.strerror}: {place}"
            continue
        return folder, _move(files, folder)
    return None, say.note("not kept", [trouble])


def _move(files: dict[str, Path], folder: Path) -> str:
    """Move files to `folder`; return what could not be done."""
    try:
        for name, path in files.items():
            shutil.move(path, folder / name)
    except OSError as error:
        return say.note("not whole", [f"{error.strerror}: {folder}"])
    return ""


def _newest_first(folder: Path) -> list[Path]:
    """Return what is in `folder`; another launch may be removing some of it."""
    ages = {}
    for path in folder.iterdir():
        try:
            ages[path] = path.stat().st_mtime
        except FileNotFoundError:
            continue
    return sorted(ages, key=ages.__getitem__, reverse=True)

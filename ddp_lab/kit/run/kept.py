"""Keep output that is too long to be shown, until later runs need the place."""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ddp_lab import ROOT

LOGS = ROOT / "build" / "logs"
MOST = 5  # runs whose output is kept


def keep(files: Mapping[str, Path], program: str) -> Path:
    """Move files, by the name that each shall have, to a new folder; return it."""
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in sorted(LOGS.iterdir())[: 1 - MOST]:  # the oldest first
        shutil.rmtree(old, ignore_errors=True)
    prefix = f"{time.strftime('%Y%m%d_%H%M%S')}_{program}_"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=LOGS))
    for name, path in files.items():
        shutil.move(path, folder / name)
    return folder

"""Let a rank tell by itself where it stands, if nobody may look at it from outside."""

import os
import time
from contextlib import suppress
from pathlib import Path

from whichrank.run.channels import TELL

WAIT = 2.0  # seconds that a rank has to write down where it stands
STILL = 0.05  # seconds after which nothing more comes


def ask(pid: int, stack: Path) -> None:
    """Let a rank write into its file `stack`, and wait until it has.

    Nothing happens to another process, and to a program that has taken its place: they
    would be killed.
    """
    with suppress(OSError):  # it may end just now
        if TELL and _catches(pid) and _has_open(pid, stack):
            size = stack.stat().st_size
            os.kill(pid, TELL)
            _wait(stack, size)


def _catches(pid: int) -> bool:
    """Tell whether a process handles our signal: another program begins without."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (TELL - 1) & 1)
    return False


def _has_open(pid: int, file: Path) -> bool:
    """Tell whether a process has a file open: who has another's number has not."""
    wanted = file.stat()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(entry.stat(), wanted):
                return True
    return False


def _wait(file: Path, size: int) -> None:
    """Wait until a file has grown from `size`, and grows no more; but not for long."""
    began = grown = time.monotonic()
    last = size
    while (now := time.monotonic()) < began + WAIT:
        if (here := file.stat().st_size) != last:
            last, grown = here, now
        if last != size and now > grown + STILL:
            return
        time.sleep(0.01)

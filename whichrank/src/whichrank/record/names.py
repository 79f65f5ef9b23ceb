"""The names of the files that a run leaves behind: each is said here, and nowhere else.

proxy.py, which runs alone, cannot import this and repeats what it writes; a test
compares. Which process writes what, `launch.py` tells.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

# In the run's folder, or for one of several nodes in its `node_N`.
OUT, ERR = "out", "err"
PLAN = "plan.json"
PLAYED = "played.json"
EVENTS = "events.jsonl"
HOST = "host"
LIVES = "lives"

# In the folder of a rank; of a program that plain python runs, in the run's.
STDOUT, STDERR = "stdout.log", "stderr.log"
PID, ASK = "pid", "ask"
FLIGHT, ANSWER = "flight.json", "answer.json"
STACK = "stack"
SEEN_STACK = "stack.json"
SEEN = "seen.json"
RAISED = "raised.json"
LEFT, END = "left.json", "end.json"
EXIT = "exit.json"
WHERE = "where.json"


def node(number: int | str) -> str:
    """Return the name of a node's folder; of `*`, the pattern for all."""
    return f"node_{number}"


def reserve(path: Path, size: int) -> None:
    """Take room for a file of `size` bytes on the disk, which may be full later."""
    with suppress(OSError):
        path.with_suffix(".part").write_bytes(b" " * size)


def write(path: Path, content: Any) -> None:
    """Write a file, never half of one, into its room; nothing if that cannot be.

    The disk may be full, or a rank may have removed the folder.
    """
    part, data = path.with_suffix(".part"), json.dumps(content).encode()
    with suppress(OSError):
        with open(part, "r+b" if part.exists() else "wb") as file:
            file.write(data)
            file.truncate()
        os.replace(part, path)

"""The names of the files that a run leaves behind: each is said here, and nowhere else.

Scripts that run alone (proxy.py, rank.py) cannot import this and repeat what
they write; a test compares. Which process writes what, `launch.py` tells.
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


def write(path: Path, content: Any) -> None:
    """Write a file, never half of one; nothing if that cannot be.

    The disk may be full, or a rank may have removed the folder.
    """
    part = path.with_suffix(".part")
    with suppress(OSError):
        part.write_text(json.dumps(content))
        os.replace(part, path)

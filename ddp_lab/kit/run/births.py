"""Note which ranks, and other processes, a program starts, and how they end.

Those are what it starts by `multiprocessing`, and a Python that it starts by Popen with
a RANK of its own.

rank.py loads this into a program that starts its ranks itself. The run's folder then
has a file `children`, to which every event adds a line of JSON:

    {"parent": 6}                                         the program itself
    {"spawns": 2}                                         mp.spawn, for so many ranks
    {"pid": 7, "name": "Process-1", "by": "__main__", ...}    has started
    {"pid": 7, "asked": 17.4}                             the program is about to end it
    {"pid": 7, "said": "Traceback ...", "left": 17.4}    raises, as a fork says itself
    {"pid": 7, "before": "Traceback ...", "left": 17.4}  or exits because of that
    {"pid": 7, "code": 1, "time": 17.5, "said": ""}       was seen to have ended

Times are seconds since the epoch. Of a rank of mp.spawn there is more: its `index`, the
file `errors` in which it leaves its traceback, and that traceback, which it `said`.

multiprocessing keeps its living children in a set. Here that set tells who comes and
goes; so nothing of ours is pickled, or stands on the stack of a child while it works.
"""

import json
import multiprocessing.process
import multiprocessing.util as util
import os
import pickle
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

SPAWN = "torch.multiprocessing.spawn"  # the module of mp.spawn
BY_HAND = "subprocess"
MOST_SAID = 16_384  # characters of a traceback


def watch(path: Path) -> None:
    """Note from now on in the file `path` what this process starts."""
    python: Any = multiprocessing
    note = Notes(path)
    note({"parent": os.getpid()})
    python.process._children = _Living(note)
    get_context = python.get_context

    def get_and_note(method: str | None = None) -> Any:
        caller = sys._getframe(1)
        if caller.f_globals.get("__name__") == SPAWN and "nprocs" in caller.f_locals:
            note({"spawns": caller.f_locals["nprocs"]})
        return get_context(method)

    _hear_forks(note)
    _hear_popen(note)
    python.get_context = get_and_note  # of which mp.spawn makes use, with no rank too


def _hear_forks(note: "Notes") -> None:
    """Let each child that is a fork note how it leaves, if by an exception.

    On the stderr that the children share, tracebacks of several get mixed.
    """

    def leaves() -> None:
        error = sys.exc_info()[1]
        if error is None:
            return
        exits = isinstance(error, SystemExit)
        cause = error.__context__ if exits else error
        said = "".join(traceback.format_exception(cause)) if cause else ""
        if len(said) > MOST_SAID:
            half = MOST_SAID // 2
            said = f"{said[:half]}\n... left out ...\n{said[-half:]}"
        word = "before" if exits else "said"
        Notes(note.path)({"pid": os.getpid(), word: said, "left": time.time()})

    def begins(note: "Notes") -> None:
        util.Finalize(None, leaves, exitpriority=1000)

    util.register_after_fork(note, begins)


def _hear_popen(note: "Notes") -> None:
    """Note each Python that is given a number of its own, by the variable RANK."""
    python: Any = subprocess.Popen
    begin, send, end = python.__init__, python.send_signal, python._handle_exitstatus
    ours = os.environ.get("RANK")
    ranks: set[int] = set()

    def begin_and_note(popen: Any, args: Any, *more: Any, **options: Any) -> None:
        begin(popen, args, *more, **options)
        rank = (options.get("env") or os.environ).get("RANK", "")
        words = [args] if isinstance(args, (str, os.PathLike)) else [*args]
        is_python = os.path.basename(os.fsdecode(words[0])).startswith("python")
        if is_python and rank != ours and rank.isdecimal():
            ranks.add(popen.pid)
            event = {"pid": popen.pid, "name": f"rank {rank}", "by": BY_HAND}
            note(event | {"index": int(rank)})

    def note_and_send(popen: Any, number: int) -> None:
        if popen.pid in ranks and popen.poll() is None:
            note({"pid": popen.pid, "asked": time.time()})
        send(popen, number)

    def end_and_note(popen: Any, *status: Any) -> None:
        end(popen, *status)
        if popen.pid in ranks:
            note({"pid": popen.pid, "code": popen.returncode, "time": time.time()})

    python.__init__, python.send_signal = begin_and_note, note_and_send
    python._handle_exitstatus = end_and_note


class Notes:
    """Adds lines to a file, but in the process that began it only."""

    def __init__(self, path: Path):
        self.path, self.pid = path, os.getpid()

    def __call__(self, event: dict) -> None:
        if os.getpid() == self.pid:  # else it is a fork
            add_line(self.path, event)


def add_line(path: Path, event: dict) -> None:
    """Add an event to the file `path`; nothing if that cannot be."""
    try:
        # Opened each time: a program may close descriptors that it does not know.
        with open(path, "a") as file:
            file.write(json.dumps(event) + "\n")
    except (OSError, TypeError, ValueError):
        pass


class _Living(set):
    """The living children, as `multiprocessing.process` keeps them."""

    def __init__(self, note: Notes):
        super().__init__()
        self.note = note
        self.errors: dict[int, str] = {}  # where children of mp.spawn say what failed
        self.listens = False

    def add(self, process: Any) -> None:
        """Note that `process` has been started."""
        super().add(process)
        if not self.listens:
            self._listen()
        caller = sys._getframe(2)  # of process.start()
        by = caller.f_globals.get("__name__")
        event = {"pid": process.pid, "name": process.name, "by": by}
        if by == SPAWN:
            index, file = (caller.f_locals.get(name) for name in ("i", "tf"))
            errors = self.errors[process.pid] = getattr(file, "name", "")
            event |= {"index": index, "errors": errors}
        self.note(event)

    def discard(self, process: Any) -> None:
        """Note that `process` has ended."""
        known = process in self
        super().discard(process)
        popen = getattr(process, "_popen", None)
        if not known or popen is None or popen.returncode is None:
            return
        words, at = said(self.errors.pop(popen.pid, ""))
        end = {"code": popen.returncode, "time": at or time.time(), "said": words}
        self.note({"pid": popen.pid, **end})

    def _listen(self) -> None:
        """Note from now on that the program ends a child."""
        self.listens = True
        # Imported already: every way to start a process builds upon it.
        from multiprocessing.popen_fork import Popen

        python: Any = Popen
        send, note = python._send_signal, self.note

        def note_and_send(popen: Any, number: int) -> None:
            if popen.poll() is None:  # else it has ended by itself
                note({"pid": popen.pid, "asked": time.time()})
            send(popen, number)

        python._send_signal = note_and_send


def said(path: str) -> tuple[str, float]:
    """Return the traceback that mp.spawn keeps of a child, and when it was written."""
    try:
        with open(path, "rb") as file:
            return str(pickle.load(file)), os.fstat(file.fileno()).st_mtime
    except (OSError, EOFError, pickle.UnpicklingError):
        return "", 0.0

"""Answer while the program runs: where this rank stands, and what it has called."""

import faulthandler
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.record import names
from whichrank.run.channels import TELL
from whichrank.run.inside import errors, kernel, pending, recorder


def open_up(folder: Path) -> None:
    """Let the launcher see where this rank stands, while it runs and when it ends."""
    try:
        os.mkfifo(folder / names.ASK)
        pipe = os.open(folder / names.ASK, os.O_RDWR)  # now: later none may be free
        (folder / names.PID).write_text(str(os.getpid()))
        stack = open(folder / names.STACK, "w")  # noqa: SIM115  (as long as we live)
    except OSError:
        return  # a full disk, say: the program may still run
    names.reserve(folder / names.RAISED, errors.RESERVED)
    ends: list[int] = [signal.SIGTERM]  # it does what it would have done, besides
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # not under nohup
        ends.append(signal.SIGHUP)
    # Written by the signal handler itself: a rank that hangs in C++ answers too.
    for number in ends:
        faulthandler.register(number, file=stack, chain=True)
    if TELL:
        faulthandler.register(TELL, file=stack)
    ours = [*ends, TELL] if TELL else ends
    os.register_at_fork(after_in_child=lambda: _be_another(ours))
    kernel.allow_py_spy()
    threading.Thread(
        target=_answer, args=[pipe, folder, _meeting()], daemon=True
    ).start()


def _be_another(ours: list[int]) -> None:
    """In a fork that the program has made: what it writes would be taken for ours."""
    for number in ours:
        faulthandler.unregister(number)


def _answer(pipe: int, folder: Path, meets: str) -> None:
    """Write answer.json each time that something is written to `ask`.

    Args:
        pipe: `ask`, open.
        folder: the rank's.
        meets: where torchrun has told it to find the others.
    """
    status = os.fstat(pipe)
    with suppress(OSError):  # or the program closes what it does not know
        while os.path.samestat(os.fstat(pipe), status) and os.read(pipe, 4096):
            names.write(folder / names.ANSWER, recorder.flight() | _now(meets))


def _now(meets: str) -> dict[str, Any]:
    """Return the exception that the main thread has not told yet, the threads that it
    will wait for, and two addresses where the ranks meet: torchrun's, and the one that
    is in the environment now."""
    now = {"handles": _handles(), "threads": _threads()}
    return now | {"meets": [meets, _meeting()]}


def _handles() -> dict[str, Any] | None:
    """Return the exception that the main thread has raised, and not told yet.

    In a `finally`, or a with block, a rank may wait before it is told. What an `except`
    has caught is none.
    """
    try:
        main: Any = threading.main_thread().ident
        raised: Any = sys._current_exceptions()
        error = raised.get(main)
        error = error[1] if isinstance(error, tuple) else error  # of Python 3.11
        error = pending.find(error, sys._current_frames().get(main))
        if error is None:
            return None
        words = errors.in_words(error)[:500]
        return {"error": words, "frames": errors.frames(error)}
    except Exception:  # of the program's own exception, when it is asked
        return None


def _threads() -> dict[str, errors.Calls]:
    """Return where each thread stands for which Python waits at the end."""
    frames = sys._current_frames()
    return {
        each.name: errors.calls(traceback.extract_stack(frames[each.ident]))
        for each in threading.enumerate()
        if each.ident in frames
        and not each.daemon
        and each is not threading.main_thread()
    }


def _meeting() -> str:
    """Return where this rank is told, or means, to find the others."""
    return ":".join(os.environ.get(n, "") for n in ("MASTER_ADDR", "MASTER_PORT"))

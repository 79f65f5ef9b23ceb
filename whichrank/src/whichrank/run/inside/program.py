"""Run a program as `python -u` would, and leave word of how it ends.

torchrun's workers run in here (rank.py starts one, fork_server.py forks one). A rank
keeps in its log folder, beside torchrun's own stdout.log and stderr.log:

    pid           its process
    flight.json   its calls of the communication library, from PyTorch's flight
                  recorder (recorder.py), at the end
    answer.json   the same while it runs, if asked through the pipe `ask`, with what
                  `_now` returns (answers.py)
    stack         where each thread was when it was last asked by the signal TELL, or
                  ended with SIGTERM
    raised.json   the exception that ended the program's main part, as text, and when
                  (errors.py)
    end.json      the exit code, when the main part ended, the exceptions that it was
                  handling if it left by sys.exit, and whether the process is, and has
                  ever been, in a process group. It is written when all is done,
                  threads and exit functions included: a rank that left none has died
                  early.
    left.json     the first half of it, if the program left by sys.exit, and not with 0;
                  torchrun may end the rank before all is done

A program that plain python runs comes through this file as well. It leaves `pid`,
raised.json, left.json and end.json in the run's folder.

Then the rank leaves by os._exit. A plain exit takes the interpreter down under gloo's
threads, and sometimes one of them aborts the process there, after all its work.
"""

import atexit
import builtins
import importlib.util
import os
import signal
import sys
import threading
import time
import types
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.record import names
from whichrank.run.channels import ERROR_FILE, HOME, NODE
from whichrank.run.inside import answers, errors, recorder

# Torch 2.13 and 2.14 say so of all_gather_into_tensor and reduce_scatter_tensor.
RENAMED = ".*deprecated. Please use `torch.distributed.*_single` instead"


def run(argv: list[str]) -> None:
    """Do what `python -u ARGV` does; never return."""
    own = os.getpid()
    warnings.filterwarnings("ignore", RENAMED, FutureWarning)
    folder = _open_folder()
    code, left = _exit_code(argv, folder)
    end = {"code": code, "time": time.time()} | left
    if code and left and folder and os.getpid() == own:
        names.write(folder / names.LEFT, end)
    _finish()
    _make_room()
    _flush()
    if folder and os.getpid() == own:  # else we are a fork that the program has made
        names.write(folder / names.FLIGHT, recorder.flight())
        met = {"left_group": not recorder.in_group(), "joined": recorder.has_joined()}
        names.write(folder / names.END, end | met)
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _open_folder() -> Path | None:
    """Return where we leave word, and begin with our pid; None if nobody reads it."""
    if home := os.environ.pop(HOME, ""):  # which is not for its children
        with suppress(OSError):
            Path(home, names.PID).write_text(str(os.getpid()))
        return Path(home)
    report = os.environ.get(ERROR_FILE, "")
    folder = Path(report).parent.resolve()  # proxy.py may have moved it
    if not report or not (folder / names.STDOUT).exists():
        return None
    os.environ.pop(NODE, None)  # torchrun's, and its proxies'
    answers.open_up(folder)
    return folder


def _finish() -> None:
    """Do what Python does after the main program; on a stack, this name says so."""
    python: Any = threading
    python._shutdown()  # waits for the program's threads
    atexit._run_exitfuncs()


def _make_room() -> None:
    """Close stdin, which is empty, if no file could be opened otherwise."""
    try:
        os.close(os.dup(0))
    except OSError:
        os.closerange(0, 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed, or on a full disk


def _leave_word(folder: Path, error: BaseException) -> None:
    """Write raised.json, although there may be no room for it."""
    _make_room()
    names.write(folder / names.RAISED, errors.raised(error))


# --- what Python does with a program ---


def _exit_code(argv: list[str], folder: Path | None) -> tuple[int, dict]:
    """Run the program; return its exit code, negative for a signal.

    Return also where it left by sys.exit, and the exceptions that it handled then.
    """
    own = os.getpid()
    try:
        _run_main(argv[1:] if argv[0] == "-u" else argv)
        return 0, {}
    except SystemExit as end:
        code = _code(end)
        try:
            return code, errors.how_it_left(end)
        except Exception:  # of a signal handler, say
            return code, {}
    except BaseException as error:
        calls = error.__traceback__
        while calls and calls.tb_frame.f_code.co_filename == __file__:
            calls = calls.tb_next  # our own frames are none of the program's
        error.__traceback__ = calls
        if folder and os.getpid() == own:
            _leave_word(folder, error)
        return _tell(error), {}


def _tell(error: BaseException) -> int:
    """Print an exception as Python does at the end; return the exit code."""
    calls = error.__traceback__
    try:
        sys.excepthook(type(error), error, calls)
    except SystemExit as end:
        return _code(end)
    except BaseException as another:  # in the program's own hook, or in a handler
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(another), another, another.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, calls)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _code(end: SystemExit) -> int:
    """Return the exit code that sys.exit means, after it has said its words."""
    if end.code is None or isinstance(end.code, int):
        return int(end.code or 0)
    print(end.code, file=sys.stderr)
    return 1


def _run_main(argv: list[str]) -> None:
    """Run `-m MODULE ...`, `-c CODE ...` or `SCRIPT ...` as the main program."""
    if argv[0] == "-c" and argv[1:]:
        sys.argv, sys.path[0] = ["-c", *argv[2:]], ""
        exec(compile(argv[1], "<string>", "exec"), _become_main("<string>").__dict__)
        return
    if argv[0] == "-m" and argv[1:]:
        sys.path[0] = os.getcwd()
        _run_module(*argv[1:])
        return
    script = argv[0]
    try:
        text = Path(script).read_bytes()
    except OSError as error:
        name = os.path.join(os.getcwd(), script)
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {name!r}: {reason}", file=sys.stderr)
        sys.exit(2)
    sys.argv, sys.path[0] = argv, os.path.dirname(os.path.realpath(script))
    exec(compile(text, script, "exec"), _become_main(script).__dict__)


def _run_module(name: str, *arguments: str) -> None:
    """Do what runpy does, but without frames of its own.

    `inspect` searches all modules for the file of such a frame, and torchrun asks
    `inspect` so often that this would take half of its time.
    """
    sys.argv = ["-m", *arguments]  # while a package above it is imported
    spec = importlib.util.find_spec(name)
    if spec and spec.submodule_search_locations is not None:  # a package
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        print(f"{sys.executable}: No module named {name}", file=sys.stderr)
        sys.exit(1)
    sys.argv = [spec.origin, *arguments]
    main = _become_main(spec.origin)
    main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
    loader: Any = spec.loader
    exec(loader.get_code(name), main.__dict__)


def _become_main(file: str) -> types.ModuleType:
    """Return an empty module that is the main one from now on."""
    main = types.ModuleType("__main__")
    main.__file__ = file
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main

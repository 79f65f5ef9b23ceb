"""Run a program as `python -u` would, and leave word of where it stands and ends.

    python -u rank.py SCRIPT ARGUMENTS...     or -m MODULE ARGUMENTS...

torchrun's workers are started through this file (see proxy.py, fork_server.py). A rank
keeps in its log folder, beside torchrun's own stdout.log and stderr.log:

    pid           its process
    flight.json   its calls of the communication library, from PyTorch's flight
                  recorder, at the end
    answer.json   the same while it runs, if asked through the pipe `ask`, with what
                  `_now` returns
    stack         where each thread was when torchrun ended the rank with SIGTERM
    raised.json   the exception that ended the program's main part, as text, and when
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
import faulthandler
import importlib.util
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

C10D = os.path.join("torch", "distributed", "distributed_c10d.py")
LIBRARY: tuple[str, ...] = (
    "site-packages",
    "dist-packages",
    os.path.dirname(os.__file__),
    "<frozen",
)
LIBRARY += (os.path.join("whichrank", "examination"),)
NODE = "WHICHRANK_NODE"  # which of several nodes this is: see channels.py
HOME = "WHICHRANK_HOME"  # the run's folder, for a program that plain python runs
# In which DDP sends something, and what.
OF_TORCH = {
    "_engine_run_backward": "gradients, in backward",
    "_sync_buffers": "buffers, in DDP's forward",
    "_sync_module_states": "weights, when DDP is made",
    "_verify_param_shape_across_processes": "shapes, when DDP is made",
}
FRAMES, CHAIN = 100, 9  # that are kept of an exception, and exceptions before it
# Torch 2.13 and 2.14 say so of all_gather_into_tensor and reduce_scatter_tensor.
RENAMED = ".*deprecated. Please use `torch.distributed.*_single` instead"
RESERVED = 16_384  # bytes for raised.json, should the disk be full by then
PR_SET_PTRACER, ANY = 0x59616D61, -1  # see prctl(2)
PR_SET_PDEATHSIG = 1
READING = threading.Lock()  # as a rank that ends may be asked for its calls just then


def run(argv: list[str]) -> None:
    """Do what `python -u ARGV` does; never return."""
    own = os.getpid()
    warnings.filterwarnings("ignore", RENAMED, FutureWarning)
    folder = _log_folder()
    if home := os.environ.pop(HOME, ""):  # which is not for its children
        folder = Path(home)
        with suppress(OSError):
            (folder / "pid").write_text(str(own))
    elif folder:
        os.environ.pop(NODE, None)  # torchrun's, and its proxies'
        _open_up(folder)
    code, left = _exit_code(argv, folder)
    end = {"code": code, "time": time.time()} | left
    if left and folder and os.getpid() == own:
        _write(folder / "left.json", end)
    _finish()
    _make_room()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed, or on a full disk
    if folder and os.getpid() == own:  # else we are a fork that the program has made
        _write(folder / "flight.json", flight())
        end |= {"left_group": not _in_group(), "joined": _has_joined()}
        _write(folder / "end.json", end)
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _finish() -> None:
    """Do what Python does after the main program; on a stack, this name says so."""
    python: Any = threading
    python._shutdown()  # waits for the program's threads
    atexit._run_exitfuncs()


def _log_folder() -> Path | None:
    """Return the folder in which torchrun keeps this rank's output."""
    report = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    folder = Path(report).parent.resolve()  # see proxy.py
    return folder if report and (folder / "stdout.log").exists() else None


def _open_up(folder: Path) -> None:
    """Let the launcher see where this rank stands, while it runs and when it ends."""
    try:
        os.mkfifo(folder / "ask")
        pipe = os.open(folder / "ask", os.O_RDWR)  # now: later none may be free
        (folder / "pid").write_text(str(os.getpid()))
        stack = open(folder / "stack", "w")  # noqa: SIM115  (open as long as we live)
    except OSError:
        return  # a full disk, say: the program may still run
    try:
        (folder / "raised.part").write_bytes(b" " * RESERVED)
    except OSError:
        pass
    # Written by the signal handler itself: a rank that hangs in C++ answers too.
    faulthandler.register(signal.SIGTERM, file=stack, chain=True)
    os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
    _allow_py_spy()
    threading.Thread(
        target=_answer, args=[pipe, folder, _meeting()], daemon=True
    ).start()


def _allow_py_spy() -> None:
    """Let processes of this user look at our stack, which Ubuntu forbids by default."""
    _prctl(PR_SET_PTRACER, ANY)


def _prctl(what: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(what, ctypes.c_ulong(value), 0, 0, 0)


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
            _write(folder / "answer.json", flight() | _now(meets))


def _now(meets: str) -> dict:
    """Return the exception that the main thread handles, the threads that it will wait
    for, and two addresses where the ranks meet: torchrun's, and the one that is in the
    environment now."""
    try:
        # In a `finally`, or a with block, a rank may wait before its exception is told.
        raised: Any = sys._current_exceptions()
        error = raised.get(threading.main_thread().ident)
        error = error[1] if isinstance(error, tuple) else error  # of Python 3.11
        handles = error and {"error": _in_words(error)[:500], "frames": _frames(error)}
    except Exception:  # of the program's own exception, when it is asked
        handles = None
    now = {"handles": handles, "threads": _threads()}
    return now | {"meets": [meets, _meeting()]}


def _threads() -> dict[str, list[tuple[str, int, str]]]:
    """Return where each thread stands for which Python waits at the end."""
    frames = sys._current_frames()
    return {
        each.name: _in_lists(traceback.extract_stack(frames[each.ident]))
        for each in threading.enumerate()
        if each.ident in frames
        and not each.daemon
        and each is not threading.main_thread()
    }


def _in_lists(calls: traceback.StackSummary) -> list[tuple[str, int, str]]:
    return [(call.filename, call.lineno or 0, call.name) for call in calls[::-1]]


def _meeting() -> str:
    """Return where this rank is told, or means, to find the others."""
    return ":".join(os.environ.get(n, "") for n in ("MASTER_ADDR", "MASTER_PORT"))


def _write(path: Path, content: Any) -> None:
    """Write a file, never half of one; use the room that is reserved, if any."""
    part, data = path.with_suffix(".part"), json.dumps(content).encode()
    try:
        with open(part, "r+b" if part.exists() else "wb") as file:
            file.write(data)
            file.truncate()
        part.replace(path)
    except OSError:
        pass  # the disk is full: then stderr, perhaps, has the traceback


# --- the flight recorder ---


RECORDERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("_dump_fr_trace", {}),  # of gloo
    ("_dump_nccl_trace", {}),  # of NCCL; from 2.15 on only of "nccl-legacy"
    ("_dump_fr_trace", {"backend": "nccl2"}),  # which is "nccl" from 2.15 on
    ("_dump_fr_trace", {"backend": "nccl-lazy"}),
)


def flight() -> dict:
    """Return {"groups": {name: ranks}, "calls": [...]}; empty without torch."""
    torch: Any = sys.modules.get("torch")
    c10d = sys.modules.get("torch._C._distributed_c10d")
    if torch is None or c10d is None:
        return {"groups": {}, "calls": []}
    dumps = []
    try:
        with READING, _no_compiled_code(torch):
            for name, which in RECORDERS:
                with suppress(AttributeError, TypeError):  # not in this release
                    dumps.append(getattr(c10d, name)(**which))
            records = [pickle.loads(dump).get("entries", []) for dump in dumps]
        calls = [call for entries in records for call in as_calls(entries)]
        return {"groups": _groups(), "calls": calls}
    except Exception as error:  # another release; or torch is just being imported
        return {"groups": {}, "calls": [], "error": repr(error)}


@contextmanager
def _no_compiled_code(torch: Any) -> Iterator[None]:
    """Spare the dump a look into torch._inductor, slow to import."""
    stub = "_inductor" not in vars(torch)
    if stub:
        torch._inductor = types.SimpleNamespace()
    try:
        yield
    finally:
        if stub:
            del torch._inductor


def as_calls(entries: list[dict]) -> list[dict]:
    """Return the calls of a recorder's entries, without what only ends a batch.

    Over NCCL the calls of a batch are "scheduled" forever; its last entry tells.
    """

    def batch(entry: dict) -> tuple:
        names = ("process_group", "collective_seq_id", "p2p_seq_id", "is_p2p")
        return tuple(str(entry[name]) for name in names)

    def ends(entry: dict) -> bool:
        return entry["profiling_name"].endswith(":coalesced")

    over = {batch(e) for e in entries if ends(e) and e["state"] == "completed"}
    calls = []
    for entry in entries:
        if not ends(entry):
            calls.append(as_call(entry))
            calls[-1]["done"] |= bool(over) and batch(entry) in over
    return calls


def as_call(entry: dict) -> dict:
    """Return the parts of a flight recorder's entry that is read."""
    frames = entry.get("frames", [])
    library = [f["name"] for f in frames if f["filename"].endswith(C10D)]
    own = [
        [frame["filename"], frame["line"], frame["name"]]
        for frame in frames
        if not any(part in frame["filename"] for part in LIBRARY)
        and frame["filename"] != __file__
    ]
    backend, _, name = entry["profiling_name"].rpartition(":")
    return {
        "name": library[-1] if library else name,
        "does": name,
        "group": entry["process_group"][0],
        "number": entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"],
        "p2p": entry["is_p2p"],
        "part": _part(frames) if not library else "",
        "shapes": entry["input_sizes"],
        "dtypes": entry["input_dtypes"],
        # These keep no other state; what legacy NCCL retires may have run out of time.
        "done": entry["state"] == "completed"
        or backend in ("gloo", "nccl2", "nccl-lazy")
        and entry.get("retired", False),
        "backend": backend,
        "frames": own,
    }


def _part(frames: list[dict]) -> str:
    """Return what torch sends although the program calls no torch.distributed.

    DDP does so in C++: the frames are those of the line that has led to it.
    """
    for frame in frames:
        if not any(part in frame["filename"] for part in LIBRARY):
            return ""
        if frame["name"] in OF_TORCH:
            return OF_TORCH[frame["name"]]
    return ""


def _groups() -> dict[str, list[int]]:
    """Return the ranks of each process group that is there, by its name."""
    dist: Any = sys.modules.get("torch.distributed")
    if not _in_group():
        return {}
    names = dict(dist.distributed_c10d._world.pg_names)
    return {name: dist.get_process_group_ranks(group) for group, name in names.items()}


def _in_group() -> bool:
    dist: Any = sys.modules.get("torch.distributed")
    return bool(dist and dist.is_available() and dist.is_initialized())


def _has_joined() -> bool:
    """Tell whether this process has ever met others: a group and RPC leave traces."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    method = getattr(c10d, "_default_pg_init_method", None)
    hook = getattr(sys.excepthook, "__name__", "")
    rpc = sys.modules.get("torch.distributed.rpc")
    called = getattr(rpc, "_init_counter", 0) > 0  # by init_rpc
    return (
        _in_group() or method is not None or hook == "_distributed_excepthook" or called
    )


# --- what ended it ---


def _make_room() -> None:
    """Close stdin, which is empty, if no file could be opened otherwise."""
    try:
        os.close(os.dup(0))
    except OSError:
        os.closerange(0, 1)


def _leave_word(folder: Path, error: BaseException) -> None:
    """Write raised.json, whatever the program's exception does when it is asked."""
    _make_room()
    try:
        raised = _raised(error)
    except Exception as another:
        words = f"{type(error).__name__}, which cannot be shown: {another!r}"
        raised = {"error": words, "frames": _frames(error)[:FRAMES]}
        raised |= {"traceback": words, "time": time.time()}
    _write(folder / "raised.json", raised)


def _raised(error: BaseException) -> dict:
    """Return what is to be known of the exception that ended the program."""
    now = time.time()
    causes = [each for each, explicit in _before(error) if explicit]
    first, group = error, getattr(builtins, "BaseExceptionGroup", ())  # of Python 3.11
    while isinstance(first, group):
        first = first.exceptions[0]
        causes.insert(0, first)
    words = ", from ".join(_in_words(each) for each in [error, *causes])
    whole = "".join(traceback.format_exception(error))
    if len(whole) > RESERVED // 4:  # a character may need several bytes
        half = RESERVED // 8
        whole = f"{whole[:half]}\n... left out ...\n{whole[-half:]}"
    return {
        "error": words[: RESERVED // 8],
        "before": _words_before(error),
        "frames": (_frames(first) or _frames(error))[:FRAMES],
        "traceback": whole,
        "time": now,
    }


def _in_words(error: BaseException) -> str:
    """Return, say, `ValueError: b (at step 7)`."""
    report = traceback.TracebackException.from_exception(error, limit=0)
    report.__notes__ = None  # type: ignore[attr-defined]
    lines = "".join(report.format_exception_only()).splitlines()
    while len(lines) > 1 and lines[0].startswith("  "):  # of a SyntaxError
        del lines[0]
    words = "\n".join(lines)
    notes = [str(note) for note in getattr(error, "__notes__", None) or ()]
    return f"{words} ({'; '.join(notes)})" if notes else words


def _before(error: BaseException) -> list[tuple[BaseException, bool]]:
    """Return the exceptions that led to this one, and whether `from` says so.

    They are evidence, so also those that `from None` hides.
    """
    chain, explicit = [(error, True)], True
    while len(chain) <= CHAIN:
        last, _ = chain[-1]
        before = last.__cause__ or last.__context__
        if before is None or any(before is known for known, _ in chain):
            break
        explicit = explicit and last.__cause__ is not None
        chain.append((before, explicit))
    return chain[1:]


def _words_before(error: BaseException) -> list[str]:
    """Return the exceptions that led to this one, each in words that are not long."""
    return [_in_words(each)[:500] for each, _ in _before(error)]


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    """Return file, line and function of each call, the innermost one first."""
    calls = _in_lists(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:
        return [(error.filename, error.lineno or 0, ""), *calls]
    return calls


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
            return code, _how_it_left(end) if code else {}
        except Exception:  # of a signal handler, say
            return code, {}
    except BaseException as error:
        calls = error.__traceback__
        while calls and calls.tb_frame.f_code.co_filename == __file__:
            calls = calls.tb_next  # our own frames are none of the program's
        error.__traceback__ = calls
        if folder and os.getpid() == own:
            _leave_word(folder, error)
        try:
            sys.excepthook(type(error), error, calls)
        except SystemExit as end:
            return _code(end), {}
        except BaseException as another:  # in the program's own hook, or in a handler
            print("Error in sys.excepthook:", file=sys.stderr)
            sys.__excepthook__(type(another), another, another.__traceback__)
            print("\nOriginal exception was:", file=sys.stderr)
            sys.__excepthook__(type(error), error, calls)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1, {}


def _how_it_left(end: SystemExit) -> dict:
    return {"frames": _frames(end)[:FRAMES], "before": _words_before(end)}


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
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    return main


if __name__ == "__main__":  # and so no fork, whose parent would be the fork server
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # as the fork server does
    run(sys.argv[1:])

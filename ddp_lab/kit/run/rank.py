"""Run a program as `python -u` would, and leave word of where it stands and ends.

    python -u rank.py SCRIPT ARGUMENTS...     or -m MODULE ARGUMENTS...

torchrun's workers are started through this file (see proxy.py, fork_server.py). A rank
keeps in its log folder, beside torchrun's own stdout.log and stderr.log:

    pid           its process
    flight.json   its calls of the communication library, from PyTorch's flight
                  recorder; written when asked through the pipe `ask`, and at the end
    stack         where each thread was when torchrun ended the rank with SIGTERM
    end.json      the exit code. It is written when all is done, threads and exit
                  functions included: a rank that left none has died early.

Then the rank leaves by os._exit. A plain exit takes the interpreter down under gloo's
threads, and sometimes one of them aborts the process there, after all its work.
"""

import atexit
import faulthandler
import importlib.util
import json
import os
import pickle
import signal
import sys
import threading
import types
from pathlib import Path
from typing import Any

C10D = os.path.join("torch", "distributed", "distributed_c10d.py")
LIBRARY = ("site-packages", "dist-packages", os.path.dirname(os.__file__), "<frozen")
PR_SET_PTRACER, ANY = 0x59616D61, -1  # see prctl(2)


def run(argv: list[str]) -> None:
    """Do what `python -u ARGV` does; never return."""
    folder = _log_folder()
    if folder:
        _open_up(folder)
    code = _exit_code(argv)
    python: Any = threading
    python._shutdown()  # waits for the program's threads, as Python does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed, or on a full disk
    if folder:
        _write(folder / "flight.json", flight())
        _write(folder / "end.json", {"code": code, "left_group": not _in_group()})
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _log_folder() -> Path | None:
    """Return the folder in which torchrun keeps this rank's output."""
    report = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    folder = Path(report).parent
    return folder if report and (folder / "stdout.log").exists() else None


def _open_up(folder: Path) -> None:
    """Let the launcher see where this rank stands, while it runs and when it ends."""
    try:
        (folder / "pid").write_text(str(os.getpid()))
        os.mkfifo(folder / "ask")
        stack = open(folder / "stack", "w")  # noqa: SIM115  (open as long as we live)
    except OSError:
        return  # a full disk, say: the program may still run
    # Written by the signal handler itself: a rank that hangs in C++ answers too.
    faulthandler.register(signal.SIGTERM, file=stack, chain=True)
    os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
    _allow_py_spy()
    threading.Thread(target=_answer, args=[folder], daemon=True).start()


def _allow_py_spy() -> None:
    """Let processes of this user look at our stack, which Ubuntu forbids by default."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY), 0, 0, 0)


def _answer(folder: Path) -> None:
    """Write flight.json whenever somebody writes to `ask`."""
    while True:
        with open(folder / "ask", "rb") as pipe:  # waits for a writer
            pipe.read()
        _write(folder / "flight.json", flight())


def _write(path: Path, content: Any) -> None:
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(content))
        part.replace(path)  # never half a file
    except OSError:
        pass


# --- the flight recorder ---


def flight() -> dict:
    """Return {"groups": {name: ranks}, "calls": [...]}; empty without torch."""
    torch: Any = sys.modules.get("torch")
    c10d = sys.modules.get("torch._C._distributed_c10d")
    if torch is None or c10d is None:
        return {"groups": {}, "calls": []}
    # The dump looks for compiled code in torch._inductor, which would take seconds to
    # import, and finds none where nothing was compiled.
    stub = "_inductor" not in vars(torch)
    if stub:
        torch._inductor = types.SimpleNamespace()
    calls = []
    try:
        # gloo writes into the first, NCCL into the second.
        for name in ("_dump_fr_trace", "_dump_nccl_trace"):
            if dump := getattr(c10d, name, None):
                entries = pickle.loads(dump()).get("entries", [])
                calls += [as_call(entry) for entry in entries]
    except Exception as error:  # another release, another format
        return {"groups": {}, "calls": [], "error": repr(error)}
    finally:
        if stub:
            del torch._inductor
    return {"groups": _groups(), "calls": calls}


def as_call(entry: dict) -> dict:
    """Return the parts of a flight recorder's entry that the lab reads."""
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
        "shapes": entry["input_sizes"],
        "dtypes": entry["input_dtypes"],
        "done": entry.get("retired", False) or entry["state"] == "completed",
        "frames": own,
    }


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


# --- what Python does with a program ---


def _exit_code(argv: list[str]) -> int:
    """Run the program; return its exit code, negative for a signal."""
    try:
        _run_main(argv[1:] if argv[0] == "-u" else argv)
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next  # our own frames are none of the program's
        error.__traceback__ = traceback
        sys.excepthook(type(error), error, traceback)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _run_main(argv: list[str]) -> None:
    """Run `-m MODULE ...` or `SCRIPT ...` as the main program."""
    if argv[0] == "-m":
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


if __name__ == "__main__":
    run(sys.argv[1:])

"""A warm start: one process has torch imported and forks the ranks of every run.

Importing torch takes seconds, for torchrun and again for each rank; the lesson's own
work takes milliseconds. So a helper imports it once, and torchrun and the ranks are
forked from it. The command stays the same: torchrun starts its workers with
$PYTHON_EXEC, a documented hook, which here names a small client of the helper
(proxy.py). The helper never touches CUDA and has one thread, so that a fork is a
clean copy. It dies with the process that started it, a kernel or `make lab`, and is
started anew when a variable that torch reads, or a file that it has imported, has
changed. One thing is not as in a plain start: all forks hash strings alike, as if
PYTHONHASHSEED were set.

    python warm.py SOCKET        what `start` runs; its stdin is the caller's pipe
"""

import atexit
import faulthandler
import gc
import inspect
import io
import json
import os
import random
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

PROXY = Path(__file__).with_name("proxy.py")
PATIENCE = 60.0  # seconds to wait for the helper's imports
# Read when torch or a library below it is loaded: a helper serves one setting of these.
READ_AT_IMPORT = (
    "TORCH",
    "PYTORCH",
    "PYTHON",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "GOMP_",
    "LD_",
    "CUDA_",
    "ATEN_",
)
SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"  # in the kernel, at some time, and not for us
# torchrun waits for random.uniform(0, 0.3) seconds, lest the machines of a cluster all
# come at once. With this seed it does not wait, and alone on its machine need not.
LUCKY = 139
LENT = "DDP_LAB_WARM"  # names the folder of a helper that is lent: see `make lab`
# Python code that sets a variable of the environment.
SETS = r"environ(\[[^\]]+\] *=[^=]| *\|=|\.(update|setdefault)\()|putenv\("


# --- the caller's side ---


class Warm:
    """The helper of this process: started when first needed, anew when it must be."""

    def __init__(self):
        self.folder, self.settings = None, None
        self.process = None  # none if the helper is lent to us
        self.trouble = ""
        """Why there is no helper although there should be one."""
        self.lock = threading.RLock()  # several threads may launch at once

    def start(self, env: dict[str, str]) -> None:
        """Start the helper for programs that run in `env`, if it is not there yet."""
        if not _wanted():
            return
        settings = {k: v for k, v in env.items() if k.startswith(READ_AT_IMPORT)}
        settings.pop(SET_BY_TORCH, None)
        with self.lock:
            if settings != self.settings or self._outdated():
                self.stop()
                self.folder = _lent(settings)
                if self.folder is None or self._outdated():
                    self._start(env, settings)
                self.settings, self.trouble = settings, ""

    def lend(self, env: dict[str, str]) -> None:
        """Let the processes that we start use this helper instead of their own."""
        if self.python(env):
            os.environ[LENT] = str(self.folder)

    def _outdated(self) -> bool:
        """Tell whether a file that the helper has imported is another one by now."""
        try:
            files = json.loads((self.folder / "ready").read_text())
            return any(os.stat(path).st_mtime_ns != at for path, at in files.items())
        except FileNotFoundError as missing:
            starts = missing.filename == str(self.folder / "ready")
            return not (starts and self.folder.exists())

    def _start(self, env: dict[str, str], settings: dict[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ddp_lab-warm-"))
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(self.folder / "socket")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        write_python(self.folder, str(self.folder / "socket"))
        serves = {"pid": self.process.pid, "settings": settings}
        (self.folder / "serves").write_text(json.dumps(serves))

    def python(self, env: dict[str, str]) -> str | None:
        """Return what to run instead of `sys.executable`; None for the plain way."""
        self.start(env)
        if not _wanted() or self.trouble:
            return None
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "ready").exists():
            if not self._alive():
                said = (self.folder / "log").read_text(errors="replace").split("\n")
                self.trouble = ([line for line in said if line] or ["it has ended"])[-1]
                return None
            if time.monotonic() > deadline:
                self.trouble = f"it was not ready after {PATIENCE:g} seconds"
                return None
            time.sleep(0.01)
        if not self._alive():  # killed since, say for want of memory
            self.settings = None
            return self.python(env)
        return str(self.folder / "python")

    def _alive(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return _lent(self.settings) is not None

    def stop(self) -> None:
        """End the helper and every program that it has forked, if it is our own."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
        self.process, self.folder, self.settings = None, None, None


def _wanted() -> bool:
    """Tell whether there shall be a warm start: see `make lab COLD=1`."""
    # Elsewhere than on Linux a fork is not known to be safe.
    return sys.platform == "linux" and not os.environ.get("DDP_LAB_COLD")


def _lent(settings: dict[str, str]) -> Path | None:
    """Return the folder of a living helper that is lent to us and has `settings`."""
    folder = Path(os.environ.get(LENT, os.devnull))
    try:
        serves = json.loads((folder / "serves").read_text())
        command = Path(f"/proc/{serves['pid']}/cmdline").read_bytes()  # b"": a zombie
    except OSError:
        return None
    alive = os.fsencode(folder) in command
    return folder if alive and serves["settings"] == settings else None


def write_python(folder: Path, socket: str) -> str:
    """Write a command for $PYTHON_EXEC to `folder`; return its path (see proxy.py)."""
    words = [sys.executable, "-IS", str(PROXY), socket]
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return str(script)


WARM = Warm()
atexit.register(WARM.stop)


# --- the helper's side ---


def serve(path: str, run: Callable[[list[str]], None]) -> None:
    """Fork a program for each client at the socket `path` until stdin closes.

    In a fork, `run` takes the command line's words and never returns (see rank.py).
    """
    _load()
    gc.collect()
    gc.freeze()  # or each collection of a rank would go through all that was imported
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("an import has started a thread, so that a fork is no clean copy")
    if os.path.exists("/dev/nvidiactl") and not _can_use_gpu():
        sys.exit("a forked process cannot use the GPU here")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    _say_ready(Path(path).with_name("ready"))
    clients: dict[socket.socket, int] = {}  # connection to the program's pid
    while True:
        ready, _, _ = select.select([0, wake, listener, *clients], [], [])
        if 0 in ready:  # end of file: our caller is gone
            break
        if wake in ready:
            wake.recv(4096)
            _report(clients)
        if listener in ready:
            connection, _ = listener.accept()
            if pid := _fork(connection, [listener, wake, woken, *clients], run):
                clients[connection] = pid
            else:
                connection.close()
        for connection in [c for c in ready if c in clients]:
            _kill(clients.pop(connection))  # its client is gone
            connection.close()
    for pid in clients.values():
        _kill(pid)
    shutil.rmtree(Path(path).parent, ignore_errors=True)


def _load() -> None:
    """Import what the programs import, torch._dynamo included (DDP needs it)."""
    import encodings.idna  # noqa: F401  (for the first name of a host)

    import torch._dynamo  # noqa: F401
    import torch.distributed.elastic.rendezvous.c10d_rendezvous_backend  # noqa: F401
    import torch.distributed.elastic.rendezvous.dynamic_rendezvous as rendezvous
    import torch.distributed.launcher.api  # noqa: F401  (what torchrun itself imports)
    import torch.nn.parallel  # noqa: F401
    import torch.optim  # noqa: F401
    import torch.utils.data  # noqa: F401
    import torch.utils.serialization.config  # noqa: F401  (torch.save)
    import torchvision  # noqa: F401

    # torchrun's rendezvous looks at its own source, which first indexes every module.
    inspect.getsource(rendezvous.DynamicRendezvousHandler)


def _can_use_gpu() -> bool:
    """Tell whether CUDA works in a fork of this process, by trying it in one."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # ends a try that hangs
        import torch

        os._exit(int(torch.cuda.is_available() and not torch.ones(1).cuda().item()))
    return os.waitpid(pid, 0)[1] == 0


def _say_ready(path: Path) -> None:
    """Write to `path` which files were imported, and of what time they are."""
    files = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if name and os.path.exists(name):
            files[name] = os.stat(name).st_mtime_ns
    part = path.with_suffix(".part")
    part.write_text(json.dumps(files))
    part.replace(path)


def _report(clients: dict[socket.socket, int]) -> None:
    """Tell every client whose program has ended how it ended."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        ended[pid] = status
    for connection, pid in list(clients.items()):
        if pid in ended:
            _kill(pid)  # what it has left in its session
            try:
                connection.sendall(f"{ended[pid]}\n".encode())
            except OSError:
                pass
            del clients[connection]
            connection.close()


def _kill(pid: int) -> None:
    """Kill the program `pid` with its session."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _fork(connection: socket.socket, ours: list[socket.socket], run) -> int:
    """Fork the program that the client asks for; return its pid, 0 for "do it plainly".

    See proxy.py for the client.
    """
    streams, parts = _request(connection)
    if not parts:
        return 0  # the client was killed in the midst of it, and nobody waits
    folder, count, *rest = parts
    argv, variables = rest[: int(count)], rest[int(count) :]
    pid = 0
    if not _sets_environment(folder, argv):
        pid = os.fork()
        if pid == 0:
            for end in ours:
                end.close()
            _become(folder, variables, streams)
            _seed(argv)
            run(argv)
    for stream in streams:
        os.close(stream)
    try:
        connection.sendall(f"{pid}\n".encode())
    except OSError:
        pass  # the client is gone, which `serve` is going to see
    return pid


def _request(connection: socket.socket) -> tuple[list[int], list[str]]:
    """Return the streams and the words of a client's request; none if it is not whole.

    A client can be killed at any time, say because another rank has failed meanwhile.
    """
    streams, data = [], b""
    try:
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        data = connection.makefile("rb").read(int.from_bytes(size, "big"))
        if data and len(data) == int.from_bytes(size, "big"):
            return streams, [os.fsdecode(part) for part in data.split(b"\0")]
    except OSError:
        pass
    for stream in streams:
        os.close(stream)
    return [], []


def _sets_environment(folder: str, argv: list[str]) -> bool:
    """Tell whether a script sets variables before it imports torch.

    torch may read them when it is loaded, and in a fork it is loaded already.
    """
    script = argv[1] if argv[0] == "-u" else argv[0]
    try:
        text = Path(folder, script).read_text(errors="replace")
    except OSError:
        return False  # a module, or no such file
    head = re.split(r"^\s*(?:import|from) torch", text, maxsplit=1, flags=re.M)[0]
    return bool(re.search(SETS, head))


def _become(folder: str, variables: list[str], streams: list[int]) -> None:
    """Give this fork what the program shall find: its folder, environment, streams."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    os.chdir(folder)
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False  # torch's, 50 ms long: the helper's to call, not ours
    if processes := sys.modules.get("multiprocessing.process"):
        processes.ORIGINAL_DIR = os.getcwd()  # from which children find a relative path
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(file=2)


def _seed(argv: list[str]) -> None:
    """Let every program draw other random numbers than its brothers."""
    alone = argv[:2] == ["-m", "torch.distributed.run"] and "--standalone" in argv
    random.seed(LUCKY if alone else None)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _stream(number: int) -> io.TextIOWrapper:
    """Return the file descriptor `number` as `python -u` would open it."""
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


if __name__ == "__main__":
    # Our neighbour, and this file by another name, because the program takes the name
    # __main__: `inspect`, which torchrun asks often, searches long for a file without.
    import rank
    import warm

    for module in (rank, warm):  # a program may have modules of these names
        sys.modules[f"ddp_lab.kit.run.{module.__name__}"] = module
        del sys.modules[module.__name__]
    del sys.path[0]  # where nothing else shall be found
    sys.path.insert(0, "")
    warm.serve(sys.argv[1], rank.run)

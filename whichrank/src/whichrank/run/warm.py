"""A warm start: torchrun and the ranks are forked from a process that holds torch.

Importing torch takes seconds, for torchrun and again for each rank; the work of a small
program takes milliseconds. So the fork server (fork_server.py) imports it once, and
torchrun and the ranks are forked from it. The command stays the same: torchrun starts
its workers with $PYTHON_EXEC, a documented hook, which here names a small client of the
fork server (proxy.py).

A `Warm` is one fork server. It dies with the process that started it, and is started
anew when a variable has changed that torch reads when it is imported. After an update
of torch restart the process, a kernel, say.
"""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from whichrank.record.words import signal_name
from whichrank.run.channels import COLD_ONLY, LENT, READY, SERVES, SOCKET
from whichrank.run.cold import why_cold
from whichrank.run.command import OWN_STORE
from whichrank.run.starter import Tell, write_python

FORK_SERVER = Path(__file__).with_name("fork_server.py")
IMPORT_WAIT = 180.0  # seconds for the fork server's imports, on a busy machine
IMPORTS = "importing torch, once"  # what a run does meanwhile
TOLD_EVERY = 0.2  # seconds
# Read when torch or a library below it is loaded: a server has one setting of these.
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
READ_LATER = (
    OWN_STORE,  # by torchrun, at each rendezvous
    "TORCH_DISTRIBUTED_DEBUG",  # by each fork once more: see fork_server.py
    "TORCHINDUCTOR_CACHE_DIR",  # set by torch itself, in the kernel
)
NO_GPUS = "CUDA_VISIBLE_DEVICES", ""  # read when a program first asks for a GPU


class Warm:
    """A fork server: started when first needed, and anew when it has to be."""

    def __init__(self) -> None:
        atexit.register(self.stop)
        os.register_at_fork(after_in_child=self.forget)
        self.folder: Path | None = None
        self.settings: dict[str, str] | None = None
        self.process: subprocess.Popen[bytes] | None = None  # None if it is lent to us
        self.trouble = ""
        """Why there is no fork server although there should be one."""
        self._noted = ""  # the trouble of which the reader knows
        self._starting = threading.Lock()

    def start(self, env: dict[str, str]) -> None:
        """Start the server for programs that run in `env`, if it is not there yet."""
        if not wanted():
            return
        settings = settings_in(env)
        with self._starting:  # two threads may come at once
            if self.folder and self.folder.exists() and settings == self.settings:
                return
            self.stop()
            self.folder, self.settings, self.trouble = _lent(settings), settings, ""
            self.folder = self.folder or self._start(env, settings)

    def _start(self, env: dict[str, str], settings: dict[str, str]) -> Path:
        """Start a server of our own; return its folder."""
        folder = Path(tempfile.mkdtemp(prefix="whichrank-warm-"))
        others = {k: v for k, v in env.items() if not k.startswith(READ_AT_IMPORT)}
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(FORK_SERVER), str(folder / SOCKET)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=others | settings,
                start_new_session=True,
            )
        write_python(folder, str(folder / SOCKET))
        serves = {"pid": self.process.pid, "settings": settings}
        (folder / SERVES).write_text(json.dumps(serves))
        return folder

    def python(self, env: dict[str, str], tell: Tell | None = None) -> str | None:
        """Return what to run instead of `sys.executable`; None for a plain start.

        `tell` is called while torch is still being imported.
        """
        self.start(env)
        if self.folder is None or not wanted() or self.trouble:
            return None
        self.trouble = self._await(self.folder, tell)
        if self.trouble:
            return None
        if not self._alive():  # killed since, say for want of memory
            self.settings = None
            return self.python(env, tell)
        return str(self.folder / "python")

    def _await(self, folder: Path, tell: Tell | None) -> str:
        """Wait until the server has imported everything; return what hinders it."""
        last, start = 0.0, time.monotonic()
        while not (folder / READY).exists():
            now = time.monotonic()
            if not self._alive():
                lines = (folder / "log").read_text(errors="replace").splitlines()
                return next(filter(None, reversed(lines)), "the fork server has ended")
            if now > start + IMPORT_WAIT:
                return f"the fork server was not ready after {IMPORT_WAIT:g} s"
            if tell and now > last + TOLD_EVERY:
                tell(IMPORTS)
                last = now
            time.sleep(0.01)
        return ""

    def unfit(self, program: str) -> str:
        """Return why a fork would run a program otherwise than a shell; see cold.py."""
        return why_cold(Path(program)) if wanted() else ""

    def ended_by(self, python: str) -> str:
        """Return who has ended the server behind `python`: "" if it still serves."""
        folder = Path(python).parent
        if self.process and folder == self.folder:
            code = self.process.poll()
            return "" if code is None else signal_name(-code) or "somebody"
        return "somebody" if _serving(folder) is None else ""

    def new_trouble(self) -> str:
        """Return why there is no fork server, but the same reason only once."""
        new = self.trouble if self.trouble != self._noted else ""
        self._noted = self.trouble or self._noted
        return new

    def lend(self, env: dict[str, str]) -> str | None:
        """Let what we start use this server instead of its own; return its `python`."""
        python = self.python(env)
        if python:
            os.environ[LENT] = str(self.folder)
        return python

    def _alive(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return self.settings is not None and _lent(self.settings) is not None

    def stop(self) -> None:
        """End the server and every program that it has forked, if it is our own."""
        if self.process and self.process.stdin:
            if self.folder and not (self.folder / READY).exists():
                self.process.kill()  # it imports, and has forked nothing yet
            self.process.stdin.close()
            self.process.wait()
        if self.process and self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.process, self.folder, self.settings = None, None, None

    def forget(self) -> None:
        """Let go of the server in a process that its owner has forked.

        The fork holds the pipe, too, and would keep the server alive without the owner.
        """
        if self.process and self.process.stdin:
            os.close(self.process.stdin.fileno())
            self.process.stdin = None
        self.process, self.folder, self.settings = None, None, None
        self._starting = threading.Lock()  # a thread that held it is not here


def settings_in(env: dict[str, str]) -> dict[str, str]:
    """Return the variables of which a server has one setting."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(READ_AT_IMPORT)
        and name not in READ_LATER
        and (name, value) != NO_GPUS
    }


def wanted() -> bool:
    """Tell whether there shall be a warm start."""
    # Elsewhere than on Linux a fork is not known to be safe.
    return sys.platform == "linux" and not os.environ.get(COLD_ONLY)


def _lent(settings: dict[str, str]) -> Path | None:
    """Return the folder of a living server that is lent to us and has `settings`."""
    folder = Path(os.environ.get(LENT, os.devnull))
    return folder if _serving(folder) == settings else None


def _serving(folder: Path) -> dict[str, str] | None:
    """Return the settings of the server in `folder`; None if it does not live."""
    try:
        serves = json.loads((folder / SERVES).read_text())
        command = Path(f"/proc/{serves['pid']}/cmdline").read_bytes()  # b"": a zombie
    except OSError:
        return None
    return serves["settings"] if os.fsencode(folder) in command else None

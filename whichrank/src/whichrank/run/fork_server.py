"""The fork server: import torch once, and fork torchrun and the ranks of every run.

    python fork_server.py SOCKET

warm.py starts it, with a pipe for its stdin, and proxy.py is its client. It never
touches CUDA and has one thread, so that a fork is a clean copy. Of this package it
imports only what runs inside a rank and its own parts, because every program inherits
what it has imported. When the pipe closes, it ends, and so do all that it has forked
and all that they have started. If it is killed, its forks are killed with it.

Two things are not as in a plain start: all forks hash alike, as if PYTHONHASHSEED were
set, and hold what this process has imported. Where that could matter, a program starts
cold: see cold.py.
"""

import faulthandler
import io
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ != "__main__":  # see the last lines
    from whichrank.run import tricks
    from whichrank.run.channels import READY, RUN
    from whichrank.run.inside import kernel

AGENT = ["-m", "torch.distributed.run"]
GPU_TRIAL = 30  # seconds that a fork has to try whether it can use the GPU
LIMITS = [
    number for name, number in vars(resource).items() if name.startswith("RLIMIT_")
]

Enter = Callable[[int], None]
"""Moves this process into the namespaces of another: `namespaces.enter_like`."""

Program = Callable[[list[str]], None]
"""Runs the program that an argument list names, and never returns: `program.run`."""


def main(path: Path) -> None:
    """Serve at the socket `path` until stdin closes."""
    from whichrank.run import guard, namespaces
    from whichrank.run.inside import program

    load()
    if os.path.exists("/dev/nvidiactl") and not _can_use_gpu():
        sys.exit("a forked process cannot use the GPU here")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # or it would take a while to end
    server = Server(path, program.run, namespaces.enter_like)
    path.with_name(READY).touch()
    server.serve()
    guard.end_all(*server.marks, grace=0)  # whatever the forks have started, and left
    shutil.rmtree(path.parent, ignore_errors=True)


def load() -> None:
    """Import what the programs import, torch._dynamo included (DDP needs it).

    Raises:
        SystemExit: if a fork would be no clean copy of this process.
    """
    import encodings.idna  # noqa: F401  (for the first name of a host)

    with tricks.without_nanobinds_exit():
        import torch._dynamo  # noqa: F401
        import torch.distributed.elastic.rendezvous.c10d_rendezvous_backend  # noqa: F401
        import torch.distributed.launcher.api  # noqa: F401  (what torchrun imports)
        import torch.nn.parallel  # noqa: F401
        import torch.optim  # noqa: F401
        import torch.utils.data  # noqa: F401
        import torch.utils.serialization.config  # noqa: F401  (torch.save)
        import torchvision  # noqa: F401

    tricks.forget_exits()
    tricks.ask_for_no_names()
    tricks.freeze()
    tricks.take_huge_pages()
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("an import has started a thread, so a fork would not be a clean copy")


def _can_use_gpu() -> bool:
    """Tell whether CUDA works in a fork of this process, by trying it in one."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(GPU_TRIAL)
        import torch

        os._exit(int(torch.cuda.is_available() and not torch.ones(1).cuda().item()))
    return os.waitpid(pid, 0)[1] == 0


class Server:
    """The programs that have been forked and still run, each with its client."""

    def __init__(self, path: Path, run: Program, enter: Enter):
        self.run, self.enter = run, enter
        self.programs: dict[socket.socket, int] = {}  # connection to the program's pid
        self.marks: set[str] = set()  # of the runs that have asked for forks
        self.wake, self.woken = socket.socketpair()
        for end in (self.wake, self.woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self.woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(128)

    def serve(self) -> None:
        """Fork a program for each client until stdin closes; then end them all."""
        while True:
            watched: list[Any] = [0, self.wake, self.listener, *self.programs]
            ready, _, _ = select.select(watched, [], [])
            if 0 in ready:  # end of file: the process that started us is gone
                break
            if self.wake in ready:
                self.wake.recv(4096)
                self._report_ends()
            if self.listener in ready:
                self.accept()
            for connection in [c for c in ready if c in self.programs]:
                _kill(self.programs.pop(connection))  # its client is gone
                connection.close()
        for pid in self.programs.values():
            _kill(pid)

    def accept(self) -> None:
        """Fork the program that a new client asks for.

        The fork tells the client its pid, as both of them see it.
        """
        connection, _ = self.listener.accept()
        request = _receive(connection)
        if request is None:  # the client was killed in the midst of it
            connection.close()
            return
        named = (variable.partition("=") for variable in request.variables)
        self.marks |= {mark for name, _, mark in named if name == RUN}
        pid = self._fork(request, connection)
        for stream in request.streams:
            os.close(stream)
        self.programs[connection] = pid
        self.note_start(request, pid)

    def _fork(self, request: "Request", client: socket.socket) -> int:
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            self._follow(_take_limits(client))
            die_with(server)
            _tell(client, os.getpid())
            # The client's, too: it shall see the end of it when the server is killed.
            for end in (self.listener, self.wake, self.woken, *self.programs, client):
                end.close()
            _become(request)
            if request.argv[:2] == AGENT:
                tricks.list_no_source()
            _seed(request.argv)
            _take_debug_level()
            self.run(request.argv)
        return pid

    def _follow(self, client: int) -> None:
        """Enter the namespaces of the process `client`: those of a node, say.

        The kernel may forget `die_with` then, so this comes first.
        """
        try:
            self.enter(client)
        except (FileNotFoundError, ProcessLookupError):
            os._exit(1)  # the client has been killed already

    def _report_ends(self) -> None:
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
        for connection, pid in list(self.programs.items()):
            if pid in ended:
                _kill_session(pid)  # what it has left
                self.note_end(pid, ended[pid])
                _tell(connection, ended[pid])
                del self.programs[connection]
                connection.close()

    def note_start(self, request: "Request", pid: int) -> None:
        """Hear that a program has been forked, if you want to know."""

    def note_end(self, pid: int, status: int) -> None:
        """Hear that a program has ended, and how waitpid tells it."""


def _tell(client: socket.socket, number: int) -> None:
    try:
        client.sendall(f"{number}\n".encode())
    except OSError:
        pass  # the client is gone, which `serve` is going to see


def _kill(pid: int) -> None:
    """Kill the program `pid` with its session, which it may not have begun yet."""
    _kill_session(pid)
    os.kill(pid, signal.SIGKILL)


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


@dataclass(frozen=True)
class Request:
    """What a client wants to have run; see proxy.py."""

    folder: str
    argv: list[str]
    variables: list[str]
    """The environment, as NAME=VALUE."""
    streams: list[int]
    """stdin, stdout and stderr."""


def _receive(connection: socket.socket) -> Request | None:
    """Return a client's request; None if it is not whole.

    A client can be killed at any time, say because another rank has failed meanwhile.
    """
    streams: list[int] = []
    try:
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        data = connection.makefile("rb").read(int.from_bytes(size, "big"))
        if data and len(data) == int.from_bytes(size, "big"):
            folder, count, *rest = (os.fsdecode(part) for part in data.split(b"\0"))
            argv, variables = rest[: int(count)], rest[int(count) :]
            return Request(folder, argv, variables, streams)
    except OSError:
        pass
    for stream in streams:
        os.close(stream)
    return None


def die_with(server: int) -> None:
    """Have the kernel kill this fork when the server is killed."""
    kernel.die_with_parent()
    if os.getppid() not in (server, 0):  # 0: in another pid namespace than we are
        os._exit(1)


def _take_limits(client: socket.socket) -> int:
    """Give this fork the limits of the client that it stands for; return its pid.

    They are the caller's, as in a plain start, and one is the mark of its run (see
    guard.py).
    """
    pid = int.from_bytes(
        client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder
    )
    for number in LIMITS:
        try:
            resource.setrlimit(number, resource.prlimit(pid, number))
        except ProcessLookupError:
            os._exit(1)  # the client has been killed already
        except (ValueError, OSError):
            pass  # more than we may have ourselves
    return pid


def _become(request: Request) -> None:
    """Give this fork what the program shall find: its folder, environment, streams."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    for variable in request.variables:
        name, _, value = variable.partition("=")
        os.environ[name] = value
    os.chdir(request.folder)
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes:
        processes.ORIGINAL_DIR = os.getcwd()  # from which children find a relative path
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(file=2)


def _seed(argv: list[str]) -> None:
    """Seed anew, so that no two forks draw the same random numbers."""
    alone = argv[:2] == AGENT and "--standalone" in argv
    random.seed(tricks.SEED_WITHOUT_SLEEP if alone else None)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()  # as a process that imports it begins


def _take_debug_level() -> None:
    """Let torch read TORCH_DISTRIBUTED_DEBUG again, as where it is imported."""
    if distributed := sys.modules.get("torch.distributed"):
        distributed.set_debug_level_from_env()


def _stream(number: int) -> io.TextIOWrapper:
    """Return the file descriptor `number` as `python -u` would open it."""
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


if __name__ == "__main__":
    # Each fork gives the name `__main__` to its program, and `inspect`, which torchrun
    # asks often, searches long for a file that no module has. So this file is imported
    # by its real name, and only this import looks there.
    sys.path[0] = str(Path(__file__).parents[2])
    from whichrank.run import fork_server

    sys.path[0] = ""
    fork_server.main(Path(sys.argv[1]))

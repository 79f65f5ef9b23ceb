"""Run one command and let no process of it outlive the caller.

    python -IS guard.py MARK FOLDER

Our stdin is one end of a pair of sockets; the caller holds the other. The command comes
in through it; how it ended, and when we ended the rest, goes out. The command is not
among our arguments: `pkill -f train.py` would find the guard as well.

When that socket closes, because the run was stopped or because the caller is dead,
every process that carries the run's mark is ended. torchrun starts each rank in a
session of its own, so killing a process group would miss the ranks. There are two
marks, and a process with either of them belongs to the run:

    RLIMIT_RTTIME       a number that stands for the run. A process that leaves the
                        session, becomes a daemon or clears its environment keeps its
                        limits, and this one limits real-time processes only.
    WHICHRANK_RUN       in the environment, for systems that do not have this limit.

If the caller is dead, the run's FOLDER is removed as well.

Somebody waits for us at each start. So the command is started first, and what
takes long to import is imported while it runs (`signal` is that long: see proxy.py).
"""

import _signal as signal
import os
import sys
from _collections_abc import Iterator

MARK = "WHICHRANK_RUN"  # see channels.py
LIMIT = b"Max realtime timeout"  # what /proc calls RLIMIT_RTTIME
GRACE = 3.0  # seconds that a process has to end by itself after SIGTERM


def limit(mark: str) -> int:
    """Return the RLIMIT_RTTIME of the run `mark`: microseconds, more than 8 years."""
    return 1 << 48 | int(mark[:12], 16)


def pids(*marks: str) -> Iterator[int]:
    """Yield the living processes of these runs, without this one.

    Each is yielded when it is found, so that a signal reaches it before it forks again.
    """
    if sys.platform != "linux":
        yield from _by_environment(*marks)
        return
    limits = {b"%d" % limit(mark) for mark in marks}
    words = {f"{MARK}={mark}".encode() for mark in marks}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if int(name) == os.getpid():
                continue
            of_limit = _read(name, "limits").partition(LIMIT)[2].split(maxsplit=1)[:1]
            if limits.isdisjoint(of_limit):
                if words.isdisjoint(_read(name, "environ").split(b"\0")):
                    continue
            if _lives(name):
                yield int(name)
        except OSError:
            continue  # ended meanwhile, or of another user


def _by_environment(*marks: str) -> Iterator[int]:
    """Yield what `pids` does, on a system without /proc."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in marks and process.pid != os.getpid():
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process.pid
        except (psutil.Error, OSError):
            continue


def _read(pid: str, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.readall()


def _lives(pid: str) -> bool:
    """Tell whether a process is no zombie: a thread may outlive the main one."""
    state, *_ = _read(pid, "stat").rpartition(b")")[2].split()
    return state not in (b"Z", b"X") or len(os.listdir(f"/proc/{pid}/task")) > 1


def send(number: int, *marks: str) -> bool:
    """Send the signal `number` to these runs; return whether anybody was there."""
    there = False
    for pid in pids(*marks):
        try:
            os.kill(pid, number)
            there = True
        except ProcessLookupError:
            there = True  # but it may have forked
        except PermissionError:
            pass  # of another user by now, and out of reach
    return there


def end_all(*marks: str, grace: float = GRACE) -> None:
    """End these runs: SIGTERM, `grace` seconds, SIGKILL until none is left."""
    import time

    number, deadline = int(signal.SIGTERM), time.monotonic() + grace
    # Look twice: a process that is born while we look is missed.
    while send(number, *marks) or send(number, *marks):
        number = signal.SIGKILL if time.monotonic() > deadline else 0
        time.sleep(0.05)


def start(mark: str, command: list[str]) -> int:
    """Start `command` under the mark, with nothing to read; return its pid."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file after SIGABRT
    kind = getattr(resource, "RLIMIT_RTTIME", -1)  # which macOS does not have
    ours = resource.getrlimit(kind) if kind >= 0 else None
    try:
        if ours:
            resource.setrlimit(kind, (limit(mark), ours[1]))
    except (ValueError, OSError):
        pass  # more than is allowed here: the environment has to do
    try:
        return os.posix_spawn(
            command[0],
            command,
            os.environ | {MARK: mark},
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two
        )
    finally:
        if ours:
            resource.setrlimit(kind, ours)  # it is the command's mark, not the guard's


def receive() -> list[str] | None:
    """Return the command that the caller sends; None if it died meanwhile."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    data = sys.stdin.buffer.read(size)
    whole = size and len(data) == size
    return [os.fsdecode(word) for word in data.split(b"\0")] if whole else None


def main(mark: str, folder: str) -> None:
    """Run the caller's command until it ends or our stdin closes; say how it ended."""
    # Until we know what to do about it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    command = receive()
    child = start(mark, command) if command else 0
    import select
    import shutil
    import time

    if sys.platform != "linux":
        import site

        site.main()  # which -S has left out: the way to psutil

    def at_once(number: int, frame: object) -> None:
        end_all(mark, grace=0)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, at_once)  # the caller is in a hurry
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    ended = status = 0
    try:
        while child and not ended:
            # Readable means end of file: the caller sends nothing but the command.
            if select.select([sys.stdin], [], [], 0.01)[0]:
                break
            ended, status = os.waitpid(child, os.WNOHANG)
    finally:
        since = time.time()
        end_all(mark)  # also whatever a finished command left behind
    if child and not ended:
        status = os.waitpid(child, 0)[1]
    try:
        code = os.waitstatus_to_exitcode(status)
        os.write(sys.stdin.fileno(), b"%d %f" % (code, since))
    except OSError:  # the caller is dead
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

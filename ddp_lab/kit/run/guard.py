"""Run one command and let no process of it outlive the caller.

    python -IS guard.py MARK FOLDER COMMAND...

The caller holds the other end of our stdin. When that pipe closes, because the run was
stopped or because the caller is dead, every process whose environment carries
DDP_LAB_RUN=MARK is ended. torchrun starts each rank in a session of its own, so killing
a process group would miss the ranks; the mark, which they inherit, does not. If the
caller is dead, the run's FOLDER is removed as well.

A reader waits for us at each start of a cell. So the command is started first, and what
takes long to import is imported while it runs (`signal` is that long: see proxy.py).
"""

import _signal as signal
import os
import sys

MARK = "DDP_LAB_RUN"
GRACE = 3.0  # seconds that a process has to end by itself after SIGTERM


def marked(mark: str) -> list:
    """Return the living processes (psutil's) of the run `mark`, without this one."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) != mark or process.pid == os.getpid():
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or somebody else's
    return found


def send(number: int, processes: list) -> None:
    """Send the signal `number` to each process that is still there."""
    import psutil

    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


def end_all(mark: str, grace: float = GRACE) -> None:
    """End the run `mark`: SIGTERM, `grace` seconds, SIGKILL until nobody is left."""
    import time

    send(signal.SIGTERM, marked(mark))
    deadline = time.monotonic() + grace
    while processes := marked(mark):
        if time.monotonic() > deadline:
            send(signal.SIGKILL, processes)
        time.sleep(0.05)


def start(mark: str, command: list[str]) -> int:
    """Start `command` under the mark, with nothing to read; return its pid."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file after SIGABRT
    return os.posix_spawn(
        command[0],
        command,
        os.environ | {MARK: mark},
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two
    )


def main(mark: str, folder: str, command: list[str]) -> int:
    """Run `command` until it ends or our stdin closes; return its exit code."""
    caller = os.getppid()
    # Until we know what to do about it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    child = start(mark, command)
    import select
    import shutil
    import site

    site.main()  # which -S has left out: the way to psutil

    def at_once(number: int, frame: object) -> None:
        end_all(mark, grace=0)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, at_once)  # the caller is in a hurry
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    ended = 0
    try:
        while not ended:
            # Readable means end of file: the caller never writes to this pipe.
            if select.select([sys.stdin], [], [], 0.01)[0]:
                break
            ended, status = os.waitpid(child, os.WNOHANG)
    finally:
        end_all(mark)  # also whatever a finished command left behind
        if os.getppid() != caller:
            shutil.rmtree(folder, ignore_errors=True)
    if not ended:
        status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code  # of a signal, as a shell says it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

"""Run one command and let no process of it outlive the caller.

    python guard.py MARK FOLDER COMMAND...

The caller holds the other end of our stdin. When that pipe closes, because the run was
stopped or because the caller is dead, every process whose environment carries
DDP_LAB_RUN=MARK is ended. torchrun starts each rank in a session of its own, so killing
a process group would miss the ranks; the mark, which they inherit, does not. If the
caller is dead, the run's FOLDER is removed as well.
"""

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

import psutil

MARK = "DDP_LAB_RUN"
GRACE = 3.0  # seconds that a process has to end by itself after SIGTERM


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes of the run `mark`, without this one."""
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


def send(number: int, processes: list[psutil.Process]) -> None:
    """Send the signal `number` to each process that is still there."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


def end_all(mark: str, grace: float = GRACE) -> None:
    """End the run `mark`: SIGTERM, `grace` seconds, SIGKILL until nobody is left."""
    send(signal.SIGTERM, marked(mark))
    deadline = time.monotonic() + grace
    while processes := marked(mark):
        if time.monotonic() > deadline:
            send(signal.SIGKILL, processes)
        time.sleep(0.05)


def main(mark: str, folder: str, command: list[str]) -> int:
    """Run `command` until it ends or our stdin closes; return its exit code."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGABRT shall leave no core file
    environ, caller = os.environ | {MARK: mark}, os.getppid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environ)

    def at_once(number, frame):
        end_all(mark, grace=0)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, at_once)  # the caller is in a hurry
    try:
        while child.poll() is None:
            # Readable means end of file: the caller never writes to this pipe.
            if select.select([sys.stdin], [], [], 0.02)[0]:
                break
    finally:
        end_all(mark)  # also whatever a finished command left behind
        if os.getppid() != caller:
            shutil.rmtree(folder, ignore_errors=True)
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

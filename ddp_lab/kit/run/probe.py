"""Look at the ranks of a run from outside: where they stand, what they have called.

What is seen is left in the ranks' log folders, for `explain.logs` to read.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from ddp_lab.kit.explain.logs import rank_folders, read_json
from ddp_lab.kit.explain.stacks import Frame
from ddp_lab.kit.run import guard

FLIGHT_WAIT = 3.0  # seconds that a rank has to write down its calls
ABORT_WAIT = 3.0  # seconds that a rank has to write its stack when it is aborted
PY_SPY_WAIT = 5.0  # seconds that py-spy has to answer


def living(folder: Path) -> dict[Path, int]:
    """Return the log folder and the process of each rank that has not ended."""
    found = {}
    for rank in rank_folders(folder):
        try:
            pid = int((rank / "pid").read_text())
        except (OSError, ValueError):
            continue  # not started yet
        if not (rank / "end.json").exists() and psutil.pid_exists(pid):
            found[rank] = pid
    return found


def look_at_ranks(folder: Path, mark: str, last: bool) -> int:
    """See where the ranks of a torchrun stand; return how many calls are complete."""
    look(folder)
    return progress(folder)


def look_at_family(folder: Path, mark: str, last: bool) -> int:
    """See where the ranks stand that a program has started itself; they tell no calls.

    Args:
        folder: the run's log folder.
        mark: what the run's processes are known by.
        last: whether to end them, if that makes them tell.
    """
    family = guard.marked(mark)
    look_at(folder, family)
    if last and not list(folder.glob("stack_*.json")):
        abort(family)
    return 0


def look(folder: Path) -> None:
    """Leave stack.json and flight.json in the log folder of each living rank."""
    ranks = living(folder)
    for rank in ranks:
        (rank / "flight.json").unlink(missing_ok=True)
    unasked = [rank for rank in ranks if not _ask(rank)]
    for rank, pid in ranks.items():
        _leave(rank / "stack.json", from_outside(pid))
    deadline = time.monotonic() + FLIGHT_WAIT
    while time.monotonic() < deadline:
        unasked = [rank for rank in unasked if not _ask(rank)]
        if all((rank / "flight.json").exists() for rank in ranks):
            return
        time.sleep(0.01)


def _ask(rank: Path) -> bool:
    """Ask a rank for its calls; return False if it is not listening yet."""
    try:
        pipe = os.open(rank / "ask", os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b"?")
        os.close(pipe)
    except OSError:
        return False
    return True


def progress(folder: Path) -> int:
    """Return how many calls the ranks had completed when they were last looked at."""
    flights = [read_json(rank / "flight.json") or {} for rank in rank_folders(folder)]
    return sum(call["done"] for flight in flights for call in flight.get("calls", []))


def abort(processes: Sequence[psutil.Process]) -> None:
    """End processes by SIGABRT, which makes faulthandler write where they stand."""
    for process in processes:
        try:
            process.send_signal(signal.SIGABRT)
        except psutil.Error:
            pass
    psutil.wait_procs(processes, timeout=ABORT_WAIT)


def look_at(folder: Path, processes: Sequence[psutil.Process]) -> None:
    """Leave in `folder` the stacks of ranks that a program has started itself.

    A rank of `mp.spawn` is told by the index that it was given, any other child of
    multiprocessing by its turn; a program without children is rank 0.
    """
    found, alone = {}, []
    for process in sorted(processes, key=lambda process: process.pid):
        stack = from_outside(process.pid)
        if not stack:
            continue
        spawned = [f.values.get("i", "") for f in stack if f.name == "_wrap"]
        if spawned and spawned[0].isdecimal():
            found[int(spawned[0])] = stack
        elif any(frame.name == "_bootstrap" for frame in stack):
            found[len(found)] = stack
        else:
            alone.append(stack)
    if not found and len(alone) == 1:
        found[0] = alone[0]
    for rank, stack in found.items():
        _leave(folder / f"stack_{rank}.json", stack)


def _leave(path: Path, stack: list[Frame]) -> None:
    try:
        path.write_text(json.dumps([asdict(frame) for frame in stack]))
    except OSError:
        pass  # the disk is full, say: then other evidence has to do


def from_outside(pid: int) -> list[Frame]:
    """Return the stack of the main thread of process `pid`, innermost frame first.

    It is empty if py-spy is missing, or not permitted to look into this process.
    """
    beside = Path(sys.executable).with_name("py-spy")
    py_spy = str(beside) if beside.exists() else shutil.which("py-spy")
    if not py_spy:
        return []
    words = [py_spy, "dump", "--json", "--locals", "--pid", str(pid)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=PY_SPY_WAIT)
        threads = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    main = [thread for thread in threads if thread["thread_name"] == "MainThread"]
    return [
        Frame(
            frame["filename"],
            frame["line"],
            frame["name"],
            {value["name"]: value["repr"] or "" for value in frame["locals"] or []},
        )
        for frame in (main or threads)[0]["frames"]
    ]

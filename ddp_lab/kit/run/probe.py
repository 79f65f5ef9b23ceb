"""Look at the ranks of a run from outside: where they stand, what they have called.

What is seen is left in the ranks' log folders, for `record.logs` to read.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from ddp_lab.kit.record import names
from ddp_lab.kit.record.logs import rank_folders, read_json
from ddp_lab.kit.record.stacks import Frame, joins, own, starts_up

FLIGHT_WAIT = 3.0  # seconds that a rank has to write down its calls
MOST_CHILDREN = 8  # processes of one rank that are looked at
PY_SPY_WAIT = 5.0  # seconds that py-spy has to answer


def living(folder: Path) -> dict[Path, int]:
    """Return the log folder and the process of each rank that has not ended."""
    found = {}
    for rank in rank_folders(folder):
        try:
            pid = int((rank / names.PID).read_text())
        except (OSError, ValueError):
            continue  # not started yet
        if not (rank / names.END).exists() and psutil.pid_exists(pid):
            found[rank] = pid
    return found


@dataclass(frozen=True)
class Progress:
    """What a look tells of how far the ranks have got."""

    done: int
    """How many calls of the communication library they have completed."""
    used: float | None
    """The seconds that they have computed; None if that is not known."""
    starting: bool = False
    """Whether one of them still imports what its program needs."""
    joining: bool = False
    """Whether one of them joins its group."""


def look_at_ranks(folder: Path, node: int | None = None) -> Progress:
    """Look at torchrun's ranks, or those of one node whose folder many share.

    Leaves stack.json, seen.json and flight.json in the log folder of each living rank.
    """
    home = folder / names.node(node or 0)
    there = living(folder).items()
    ranks = {r: pid for r, pid in there if node is None or home in r.parents}
    stacks = _look(ranks)
    used = sum(map(_used, ranks.values()))
    starting, joining = any(map(starts_up, stacks)), any(map(joins, stacks))
    return Progress(done_in(folder), used, starting, joining)


def done_in(folder: Path) -> int:
    """Return how many calls the ranks have completed, as they have left it."""
    flights = [read_json(rank / names.FLIGHT) or {} for rank in rank_folders(folder)]
    return sum(call["done"] for flight in flights for call in flight.get("calls", []))


def _used(pid: int) -> float:
    """Return the seconds that the main thread of a rank has computed.

    What it has started computes for it; its other threads may only say that it lives.
    """
    try:
        process = psutil.Process(pid)
        used = {
            each.id: each.user_time + each.system_time for each in process.threads()
        }
        others = process.children(recursive=True)
        return used.get(pid, 0.0) + sum(sum(c.cpu_times()[:2]) for c in others)
    except psutil.Error:
        return 0.0


def command_of(process: psutil.Process) -> list[str]:
    """Return the words of a process's command; none if it is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _look(ranks: dict[Path, int]) -> list[list[Frame]]:
    """Leave what is seen of each rank; return their stacks."""
    awake = {rank: pid for rank, pid in ranks.items() if not is_stopped(pid)}
    for rank in awake:
        (rank / names.FLIGHT).unlink(missing_ok=True)
        ask(rank)
    stacks = []
    for rank, pid in ranks.items():
        stacks.append(_leave(pid, rank / names.SEEN_STACK, rank / names.SEEN))
    deadline = time.monotonic() + FLIGHT_WAIT
    while time.monotonic() < deadline:
        if all((rank / names.FLIGHT).exists() for rank in awake):
            break
        time.sleep(0.01)
    return stacks


def ask(rank: Path) -> None:
    """Ask a rank for its calls."""
    with suppress(OSError):  # it has ended meanwhile, say
        pipe = os.open(rank / names.ASK, os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b"?")
        os.close(pipe)


def _leave(pid: int, stack: Path, seen: Path) -> list[Frame]:
    """Keep in a file where a rank stands, if it has not ended; return it.

    In the file `seen` what else is seen of it: is it stopped, and who works beside it?
    """
    (_, main), *others = threads(pid) or [("", [])]
    if main:
        names.write(stack, [asdict(frame) for frame in main])
    told = [
        {"name": name, "stack": [asdict(frame) for frame in frames]}
        for name, frames in beside(pid, others).items()
    ]
    names.write(seen, {"stopped": is_stopped(pid), "beside": told})
    return main


def beside(
    pid: int, threads_: Sequence[tuple[str | None, list[Frame]]]
) -> dict[str, list[Frame]]:
    """Return the stacks of what works beside the main thread of a process, by name.

    That is each of its threads, and of the processes that it has started, which stands
    in code of the program.
    """
    found = {thread_name(name, frames): frames for name, frames in threads_}
    for number, child in enumerate(_children(pid)):
        _, frames = next(iter(threads(child)), ("", []))
        found[_worker(frames) or f"child process {number}"] = frames
    return {name: frames for name, frames in found.items() if own(frames)}


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()][:MOST_CHILDREN]
    except psutil.Error:
        return []


def thread_name(name: str | None, stack: list[Frame]) -> str:
    """Return what to call a thread: those that C++ has started have no name."""
    if any(frame.name == "_run_function" for frame in stack):
        return "a thread that serves a remote call"
    return f"thread {name}" if name else "a thread without a name"


def _worker(stack: list[Frame]) -> str | None:
    """Return what to call a worker of a DataLoader."""
    for frame in stack:
        if frame.name == "_worker_loop" and "worker_id" in frame.values:
            return f"DataLoader worker {frame.values['worker_id']}"
    return None


def is_stopped(pid: int) -> bool:
    """Tell whether a process was halted, by SIGSTOP for example."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def threads(pid: int) -> list[tuple[str | None, list[Frame]]]:
    """Return the threads of process `pid`, by name, with their stacks; the main first.

    There are none if py-spy is missing, or not permitted to look. The process is left
    as it is found: one that is stopped cannot be halted for us.
    """
    found, _ = dump(pid, nonblocking=is_stopped(pid))
    return sorted(found, key=lambda thread: thread[0] != "MainThread")


def py_spy() -> str | None:
    """Return where py-spy is; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def dump(pid: int, nonblocking: bool) -> tuple[list[tuple[str, list[Frame]]], str]:
    """Return name and stack of each thread of process `pid`.

    If py-spy has none, also what it says instead.

    Args:
        pid: the process.
        nonblocking: whether it runs on while its memory is read.
    """
    words = [py_spy() or "py-spy", "dump", "--json", "--locals", "--pid", str(pid)]
    words += ["--nonblocking"] if nonblocking else []
    try:
        done = subprocess.run(words, capture_output=True, timeout=PY_SPY_WAIT)
    except (OSError, subprocess.TimeoutExpired):
        return [], ""
    try:
        threads = json.loads(done.stdout)
    except ValueError:
        return [], done.stderr.decode(errors="replace").strip()
    return [(t["thread_name"] or "", from_py_spy(t["frames"])) for t in threads], ""


def from_py_spy(frames: list[dict]) -> list[Frame]:
    """Return a stack as py-spy has it, but of a forked child without its parent's."""
    found = []
    for frame in frames:
        name = frame["name"].rpartition(".")[2]  # without the class, as Python says it
        values = {v["name"]: v["repr"] or "" for v in frame["locals"] or []}
        found.append(Frame(frame["filename"], frame["line"], name, values))
        if found[-1].begins_child:
            break
    return found

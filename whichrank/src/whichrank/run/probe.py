"""Look at the ranks of a run from outside: where they stand, what they have called.

What is seen is left in the ranks' log folders, for `record.logs` to read.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil

from whichrank.record import names
from whichrank.record.logs import rank_folders, read_json
from whichrank.record.stacks import Frame, joins, own, starts_up
from whichrank.run import told
from whichrank.run.watchdog import Pulse

CALLS_WAIT = 3.0  # seconds that a rank has to write down its calls
MOST_CHILDREN = 8  # processes of one rank that are looked at
PY_SPY_WAIT = 5.0  # seconds that py-spy has to answer
# What py-spy says to whom the system does not give another process's memory.
NOT_PERMITTED = re.compile("permission denied|not permitted|SYS_PTRACE", re.IGNORECASE)
OWN_WORD = "so the lines are the ranks' own word, without values and child processes"
MISSING = f"py-spy is not installed, {OWN_WORD}: pip install py-spy"
FORBIDDEN = (
    f"the system does not let py-spy look, {OWN_WORD}: a container needs "
    "--cap-add SYS_PTRACE, a machine kernel.yama.ptrace_scope=1 or 0"
)


def living(folder: Path) -> dict[Path, int]:
    """Return the log folder and the process of each rank that has not ended."""
    pids = {}
    for rank in rank_folders(folder):
        try:
            pid = int((rank / names.PID).read_text())
        except (OSError, ValueError):
            continue  # not started yet
        if not (rank / names.END).exists() and psutil.pid_exists(pid):
            pids[rank] = pid
    return pids


def look_at_ranks(folder: Path, node: int | None = None) -> None:
    """Leave word of torchrun's ranks, or those of one node whose folder many share.

    That is stack.json, seen.json and answer.json in the log folder of each living rank;
    where py-spy sees no stack, it has told its own.
    """
    for rank, pid in _ask_all(folder, node).items():
        _leave(pid, rank)


def see_ranks(folder: Path, node: int | None = None) -> dict[str, Pulse]:
    """Return what a watchdog has to know of the same ranks, by their log folders."""
    ranks = _ask_all(folder, node).items()
    return {str(rank): _see(pid, read_json(rank / names.ANSWER)) for rank, pid in ranks}


def _see(pid: int, flight: dict | None) -> Pulse:
    """Return what a watchdog has to know of a rank.

    Args:
        pid: its process.
        flight: its answer; None if it is too busy to answer, as while it imports.
    """
    done, joined = None, False
    if flight:
        numbers = [1 + call["number"] for call in flight["calls"] if call["done"]]
        done, joined = sum(numbers), bool(flight["groups"] or flight["calls"])
    return Pulse(done, _used(pid), not joined and _starts(pid))


def see_program(pid: int) -> dict[str, Pulse]:
    """Return the same of a program that has no torchrun, and of what it has started."""
    there = [pid, *(child.pid for child in _below(pid))][: 1 + MOST_CHILDREN]
    return {str(each): Pulse(None, _used(each), _starts(each)) for each in there}


def _starts(pid: int) -> bool:
    """Tell whether a process imports what it needs, or joins; it may, unseen."""
    (_, main), *_ = threads(pid) or [("", [])]
    return not main or starts_up(main) or joins(main)


def _used(pid: int) -> float:
    """Return the seconds that the main thread of a rank has computed.

    What it has started computes for it; its other threads may only say that it lives.
    """
    try:
        own = psutil.Process(pid).threads()
        used = {each.id: each.user_time + each.system_time for each in own}
        return used.get(pid, 0.0) + sum(sum(c.cpu_times()[:2]) for c in _below(pid))
    except psutil.Error:
        return 0.0


def _below(pid: int, recursive: bool = True) -> list[psutil.Process]:
    """Return the processes that a process has started, and that these have."""
    try:
        return psutil.Process(pid).children(recursive)
    except psutil.Error:
        return []


def _ask_all(folder: Path, node: int | None) -> dict[Path, int]:
    """Return the living ranks of one node, or of all, and their processes.

    Each is asked for its calls, and has some time to answer.
    """
    home, there = folder / names.node(node or 0), living(folder).items()
    ranks = {rank: pid for rank, pid in there if node is None or home in rank.parents}
    awake = [rank for rank, pid in ranks.items() if not is_stopped(pid)]
    for rank in awake:
        (rank / names.ANSWER).unlink(missing_ok=True)
        ask(rank)
    deadline = time.monotonic() + CALLS_WAIT
    while time.monotonic() < deadline:
        if all(_has_answered(rank) for rank in awake):
            break
        time.sleep(0.01)
    return ranks


def _has_answered(rank: Path) -> bool:
    """Tell whether a rank has answered, or has ended meanwhile."""
    return any((rank / name).exists() for name in (names.ANSWER, names.FLIGHT))


def ask(rank: Path) -> None:
    """Ask a rank for its calls."""
    with suppress(OSError):  # it has ended meanwhile, say
        pipe = os.open(rank / names.ASK, os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b"?")
        os.close(pipe)


def _leave(pid: int, rank: Path) -> None:
    """Keep in the folder of a rank where it stands, if it has not ended.

    seen.json tells whether it is stopped, what works beside it, and why py-spy cannot
    see that.
    """
    stopped = is_stopped(pid)
    stacks, complaint = dump(pid, nonblocking=stopped)
    (_, main), *others = stacks or [("", [])]
    if main:
        names.write(rank / names.SEEN_STACK, [asdict(frame) for frame in main])
    elif not stopped:
        told.ask(pid, rank / names.STACK)
    workers = [
        {"name": name, "stack": [asdict(frame) for frame in frames]}
        for name, frames in beside(pid, others).items()
    ]
    seen = {"stopped": stopped, "beside": workers, "trouble": _trouble(complaint)}
    names.write(rank / names.SEEN, seen)


def _trouble(complaint: str) -> str:
    """Return why py-spy sees no process here; "" if it complains of this one alone."""
    if py_spy() is None:
        return MISSING
    return FORBIDDEN if NOT_PERMITTED.search(complaint) else ""


def beside(
    pid: int, threads_: Sequence[tuple[str, list[Frame]]]
) -> dict[str, list[Frame]]:
    """Return the stacks of what works beside the main thread of a process, by name.

    That is each of its threads, and of the processes that it has started, which stands
    in code of the program.
    """
    stacks = {thread_name(name, frames): frames for name, frames in threads_}
    for number, child in enumerate(_below(pid, recursive=False)[:MOST_CHILDREN]):
        _, frames = next(iter(threads(child.pid)), ("", []))
        stacks[_worker(frames) or f"child process {number}"] = frames
    return {name: frames for name, frames in stacks.items() if own(frames)}


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


def threads(pid: int) -> list[tuple[str, list[Frame]]]:
    """Return the threads of process `pid`, by name, with their stacks; the main first.

    There are none if py-spy is missing, or not permitted to look. The process is left
    as it is found: one that is stopped cannot be halted for us.
    """
    return dump(pid, nonblocking=is_stopped(pid))[0]


def py_spy() -> str | None:
    """Return where py-spy is; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def dump(pid: int, nonblocking: bool) -> tuple[list[tuple[str, list[Frame]]], str]:
    """Return name and stack of each thread of process `pid`, the main one first.

    If py-spy has none, also what it says instead.

    Args:
        pid: the process.
        nonblocking: whether it runs on while its memory is read.
    """
    tool = py_spy()
    if tool is None:
        return [], "it is not installed"
    words = [tool, "dump", "--json", "--locals", "--pid", str(pid)]
    words += ["--nonblocking"] if nonblocking else []
    try:
        done = subprocess.run(words, capture_output=True, timeout=PY_SPY_WAIT)
    except (OSError, subprocess.TimeoutExpired):
        return [], ""
    try:
        threads = json.loads(done.stdout)
    except ValueError:
        return [], done.stderr.decode(errors="replace").strip()
    stacks = [(t["thread_name"] or "", from_py_spy(t["frames"])) for t in threads]
    return sorted(stacks, key=lambda stack: stack[0] != "MainThread"), ""


def from_py_spy(frames: list[dict]) -> list[Frame]:
    """Return a stack as py-spy has it, but of a forked child without its parent's."""
    stack = []
    for frame in frames:
        name = frame["name"].rpartition(".")[2]  # without the class, as Python says it
        values = {v["name"]: v["repr"] or "" for v in frame["locals"] or []}
        stack.append(Frame(frame["filename"], frame["line"], name, values))
        if stack[-1].begins_child:
            break
    return stack

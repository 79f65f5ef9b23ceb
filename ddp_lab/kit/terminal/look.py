"""Look at a process from outside, without touching it.

py-spy reads its memory while it runs on (--nonblocking). A look that stops the process
would be exact for a moving one too, but it interrupts whatever system call the process
is in, which some programs take for an error. What stands still is read exactly.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ddp_lab.kit.record.stacks import C10D, Frame
from ddp_lab.kit.run import probe

TRIES = 3  # a process that moves while its memory is read may give no stack
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
# What Yama's settings from 1 to 3 permit.
YAMA_PERMITS = ("", "a look at one's own children only", "root only", "nobody")
GLOO_THREAD = "pt_gloo_runloop"
CAP_SYS_PTRACE = 1 << 19


@dataclass(frozen=True)
class Look:
    """One look at a process."""

    time: float
    status: str = ""
    """As psutil has it; "gone" if there is no such process."""
    cpu: float = 0.0
    """Seconds of CPU time so far, of all threads."""
    woken: int = 0
    """How often the main thread has waited for something and got it, so far."""
    collectives: int = 0
    """A number that grows with each collective over gloo."""
    carried: int = 0
    """Bytes that it has read and written so far; what gloo sends counts, too."""
    stack: list[Frame] = field(default_factory=list)
    """Of the main thread, or of the one it waits for; innermost frame first."""
    threads: list[tuple[str, list[Frame]]] = field(default_factory=list)
    """The other threads of Python."""
    trouble: str = ""
    """Why there is no stack."""


def look(pid: int) -> Look:
    """Look at process `pid` once."""
    now = time.monotonic()
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            status, cpu = process.status(), sum(process.cpu_times()[:2])
            woken, carried = process.num_ctx_switches().voluntary, _carried(process)
    except (psutil.Error, OSError):
        return Look(now, "gone")
    if status == psutil.STATUS_ZOMBIE:
        return Look(now, status)
    threads, trouble = _threads(pid)
    main = next((frames for name, frames in threads if name == "MainThread"), [])
    stack = _for_whom(main, [frames for _, frames in threads])
    others = [(name, frames) for name, frames in threads if frames is not stack]
    seen = stack, others, trouble
    return Look(now, status, cpu, woken, _collectives(pid), carried, *seen)


def _for_whom(main: list[Frame], threads: list[list[Frame]]) -> list[Frame]:
    """Return the stack of the thread that speaks for the rank, most often `main`.

    If that only waits for its threads, it is one that is in a communication.
    """
    if main and main[0].file.endswith("threading.py"):
        for frames in threads:
            if any(frame.file.endswith(C10D) for frame in frames):
                return frames
    return main


def tasks(pid: int) -> Iterator[tuple[str, Path]]:
    """Yield the name of each thread of a process, and its folder in /proc."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # ended meanwhile
            yield (task / "comm").read_text().strip(), task


def _collectives(pid: int) -> int:
    """Return how often the threads have been woken in which gloo's collectives run."""
    count = 0
    for name, task in tasks(pid):
        if name == GLOO_THREAD:
            with suppress(OSError, IndexError):  # ended meanwhile
                status = (task / "status").read_text()
                switches = status.partition("\nvoluntary_ctxt_switches:")[2]
                count += int(switches.split()[0])
    return count


def _carried(process: psutil.Process) -> int:
    try:
        counted = process.io_counters()
        return counted.read_chars + counted.write_chars
    except (psutil.Error, AttributeError):  # macOS counts none
        return 0


def _threads(pid: int) -> tuple[list[tuple[str, list[Frame]]], str]:
    """Return name and stack of each thread, or why py-spy has none."""
    if not probe.py_spy():
        return [], "py-spy is not installed (pip install py-spy)"
    said = ""
    for _ in range(TRIES):
        threads, complaint = probe.dump(pid, nonblocking=True)
        if threads:
            return threads, ""
        said = complaint or said
    return [], _trouble(pid, said)


def _trouble(pid: int, said: str) -> str:
    """Say in one line why py-spy could not look at `pid`."""
    words = said.removeprefix("Error: ").splitlines()  # then where that was, in Rust
    last = words[0] if words else "no answer"
    if "ermission denied" not in said and "not permitted" not in said:
        return f"py-spy cannot read it: {last}"
    try:
        owner = psutil.Process(pid)
        if owner.uids().effective != os.geteuid() and os.geteuid():
            return f"not permitted: it belongs to {owner.username()} (sudo would be)"
    except psutil.Error:
        return "gone"
    if YAMA.exists() and (level := int(YAMA.read_text())):
        permits = YAMA_PERMITS[min(level, 3)]
        sysctl = f"kernel.yama.ptrace_scope={level}"
        return f"not permitted: {sysctl} permits {permits} (sudo would do)"
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    if not capabilities & CAP_SYS_PTRACE:
        return "not permitted: no CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
    return f"not permitted: {last}"

"""Look at the ranks of a job from outside, without touching them: who has moved?

py-spy reads a process's memory while it runs on. A look that stops the process would be
exact for a moving one too, but it interrupts whatever system call the process is in,
which some programs take for an error. What stands still is read exactly.
"""

import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from whichrank.explain.cause import Stand
from whichrank.explain.stands import (
    PEER_ARGUMENT,
    WORK,
    communication,
    find_stands,
)
from whichrank.record import stacks
from whichrank.record.rank_end import LastWord
from whichrank.record.rank_log import RankLog
from whichrank.record.stacks import Frame
from whichrank.run import probe

TRIES = 3  # a process that moves while its memory is read may give no stack
FEWEST = 3  # looks at a rank
GOLDEN = 0.618034
GLOO_THREAD = "pt_gloo_runloop"  # runs collectives
MAIN = "MainThread"
NUMBER = re.compile(r"-?\d")
BUSY = 0.1  # of a core: a process that waits uses less, one that computes uses more
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


@dataclass(frozen=True)
class Look:
    """One look at a process."""

    time: float
    log: RankLog
    """Where its threads stand."""
    cpu: float = 0.0
    """Seconds of CPU time so far, of all threads."""
    woken: Counter[str] = field(default_factory=Counter)
    """How often its threads have waited for something and got it, by name."""
    trouble: str = ""
    """Why there is no stack."""

    @property
    def stand(self) -> Stand:
        """Where the process stands."""
        return find_stands([self.log])[0]


@dataclass(frozen=True)
class Seen:
    """What the looks at one rank have shown."""

    log: RankLog
    """Where it was when it was last seen."""
    pid: int = 0
    share: float = 0.0
    """Of a core."""
    places: tuple[str, ...] = ()
    """The lines at which it was seen, if it moves."""
    trouble: str = ""
    """Why it cannot be seen."""
    moved: bool = False
    """Whether it was at another place, or with other values, from look to look."""
    nccl: bool = False
    """Whether it has a group of NCCL."""


GONE = RankLog(end=LastWord(0))


def observe(pids: dict[int, int], seconds: float) -> tuple[dict[int, Seen], float]:
    """Look at processes, by rank; return what was seen of each, and for how long.

    It ends early when all ranks have moved: then there is nothing to wait for.
    """
    looks: dict[int, list[Look]] = {rank: [] for rank in pids}
    start, now, count = time.monotonic(), 0.0, 0
    with ThreadPoolExecutor(8) as pool:
        while count < FEWEST or now < seconds and not all(map(_moved, looks.values())):
            # Never in time with a program that does something every half second, say.
            time.sleep(0.2 + 0.4 * (count * GOLDEN % 1))
            for rank, one in zip(pids, pool.map(look, pids.values()), strict=True):
                looks[rank].append(one)
            now, count = time.monotonic() - start, count + 1
    return {rank: _seen(pid, looks[rank]) for rank, pid in pids.items()}, now


def look(pid: int) -> Look:
    """Look at process `pid` once."""
    now = time.monotonic()
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            status, cpu = process.status(), sum(process.cpu_times()[:2])
    except (psutil.Error, OSError):
        status = psutil.STATUS_ZOMBIE
    if status == psutil.STATUS_ZOMBIE:
        return Look(now, GONE)
    threads, trouble = _threads(pid)
    stack = threads.pop(MAIN, [])
    threads = {n: s for n, s in threads.items() if stacks.own(s) or communication(s)}
    log = RankLog(stack=stack, threads=threads, stopped=status in STOPPED)
    return Look(now, log, cpu, _woken(pid), trouble)


def _threads(pid: int) -> tuple[dict[str, list[Frame]], str]:
    """Return the stack of each thread by name, or why there are none."""
    complaint = ""
    for _ in range(TRIES):
        threads, complaint = probe.dump(pid, nonblocking=True)
        if threads:
            return dict(threads), ""
    first = complaint.removeprefix("Error: ").partition("\n")[0] or "no answer"
    if probe.NOT_PERMITTED.search(complaint):
        with_more = "sudo would be; a container needs --cap-add SYS_PTRACE"
        return {}, f"not permitted ({first}): {with_more}"
    return {}, f"py-spy cannot read it: {first}"


def _woken(pid: int) -> Counter[str]:
    """Return how often the system's threads of a process have been woken, by name."""
    woken: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # ended meanwhile
            lines = (task / "status").read_text().splitlines()
            facts = dict(line.split(":\t", 1) for line in lines)
            name = MAIN if task.name == str(pid) else facts["Name"]
            woken[name] += int(facts["voluntary_ctxt_switches"])
    return woken


def _seen(pid: int, looks: Sequence[Look]) -> Seen:
    stacked = [one for one in looks if one.log.stack]
    first, last = looks[0], looks[-1]
    log = stacked[-1].log if stacked and last.log is not GONE else last.log
    share = (last.cpu - first.cpu) / max(last.time - first.time, 0.1)
    lines = [frame.short for one in stacked if (frame := stacks.own(one.log.stack))]
    if share >= BUSY:  # so its threads do not speak for it
        log = replace(log, threads={})
    elif not any(one.stand.waits for one in stacked):
        log = replace(log, beside=probe.beside(pid, [*log.threads.items()]))
    trouble = "" if stacked else last.trouble
    places = tuple(dict.fromkeys(lines))
    nccl = any("nccl" in name for name in last.woken)
    return Seen(log, pid, share, places, trouble, _moved(looks), nccl)


def _moved(looks: Sequence[Look]) -> bool:
    """Tell whether a rank has got on between the first look and the last.

    Its lines tell, or its numbers: a loop is always at the same lines, but counts. Each
    collective over gloo wakes a thread of gloo. A rank that waits in one send or recv
    is not even woken; one that goes from one to the next is.
    """
    stacked = [one for one in looks if one.log.stack]
    if len({_state(one.log.stack) for one in stacked}) > 1:
        return True
    message = stacked and stacked[0].stand.name in (*PEER_ARGUMENT, WORK)
    woken = looks[-1].woken - looks[0].woken
    return bool(woken[GLOO_THREAD] or message and woken[MAIN])


def _state(stack: list[Frame]) -> tuple:
    """Return where a process is, and its numbers, without what libraries do to wait."""
    return tuple(
        (
            frame.file,
            frame.line,
            frame.name,
            *filter(NUMBER.match, frame.values.values()),
        )
        for frame in stack
        if not frame.standard
    )

"""What several looks at the ranks of a job show: who has moved, and who has not."""

import os
import socket
import stat
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from ddp_lab.kit.explain.stands import PEER_ARGUMENT, WORK, find_stands
from ddp_lab.kit.record import stacks
from ddp_lab.kit.record.logs import RankLog, read_json
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.terminal.jobs import Job
from ddp_lab.kit.terminal.look import Look, look, tasks

GOLDEN = 0.618034
FEWEST = 3  # looks
LARGE = 100_000  # bytes: in a call that stands still, less is read and written
# Calls in which a rank asks again and again whether the others are there.
ASKING = ("init_process_group", "new_group", "monitored_barrier")


@dataclass
class Seen:
    """What the looks at one rank have shown."""

    pid: int
    host: str
    status: str = ""
    """psutil's, "gone" if there is no such process (any more), or "away"."""
    stack: list[Frame] = field(default_factory=list)
    """Where it was when it was last seen."""
    places: list[str] = field(default_factory=list)
    """The program's own lines at which it was seen, each once."""
    moved: bool = False
    """Whether it was at another place, or with other values, from look to look."""
    share: float = 0.0
    """Of a core, used during the looks."""
    runnable: float = 0.0
    """The share of the looks in which its main thread ran, or would have liked to."""
    woken: int = 0
    """How often its main thread has waited for something, and got it."""
    waited: float = 0.0
    """The share of the looks in which it waited in a communication."""
    threads: list[tuple[str, list[Frame]]] = field(default_factory=list)
    """Its other threads."""
    workers: list[tuple[int, list[Frame]]] = field(default_factory=list)
    """Further processes of this rank, by pid, if it does not wait for another rank."""
    trouble: str = ""
    """Why it could not be seen."""
    silent: float | None = None
    """Seconds since its output has grown, if that is a file."""
    flight: dict = field(default_factory=dict)
    """Its calls, if it has written them down; as in flight.json."""
    nccl: bool = False
    """Whether it has a group of NCCL."""


def observe(job: Job, seconds: float) -> tuple[dict[int, Seen], float]:
    """Look at the ranks of `job`; return by rank what was seen, and for how long.

    It ends early when all ranks have moved: then there is nothing to wait for.
    """
    looks: dict[int, list[Look]] = {rank: [] for rank in job.ranks}
    pids = [process.pid for process in job.ranks.values()]
    start = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        while True:
            for rank, one in zip(looks, pool.map(look, pids), strict=True):
                looks[rank].append(one)
            now = time.monotonic() - start
            count = len(looks[min(looks)])
            if count >= FEWEST and (now >= seconds or all(map(_moved, looks.values()))):
                break
            # Never in time with a program that does something every half second, say.
            time.sleep(0.2 + 0.4 * (count * GOLDEN % 1))
    ranks = {r: _seen(pid, looks[r]) for r, pid in zip(looks, pids, strict=True)}
    for rank, seen in ranks.items():
        process = job.ranks[rank]
        seen.flight = _flight(process.environment)
        seen.silent = _silent(process.pid)
        seen.nccl = any("nccl" in name for name, _ in tasks(process.pid))
        if not seen.waited:
            found = [(pid, look(pid).stack) for pid in job.workers[rank][:8]]
            seen.workers = [(pid, stack) for pid, stack in found if stack]
    host = socket.gethostname()
    zombies = job.zombies if len(job.zombies) == len(job.gone) else []
    for rank, pid in zip_longest(job.gone, zombies, fillvalue=0):
        ranks[rank] = Seen(pid, host, "gone")
    for rank in job.away:
        ranks[rank] = Seen(0, "", "away")
    return dict(sorted(ranks.items())), time.monotonic() - start


def _seen(pid: int, looks: Sequence[Look]) -> Seen:
    first, last = looks[0], looks[-1]
    stacked = [one for one in looks if one.stack]
    frames = [stacks.own(one.stack) for one in stacked]
    waits = [bool(_call(one.stack)) for one in stacked]
    return Seen(
        pid,
        socket.gethostname(),
        last.status,
        stacked[-1].stack if stacked else [],
        list(dict.fromkeys(frame.short for frame in frames if frame)),
        _moved(looks),
        (last.cpu - first.cpu) / max(last.time - first.time, 0.1),
        sum(one.status == "running" for one in looks) / len(looks),
        last.woken - first.woken,
        sum(waits) / len(waits) if waits else 0.0,
        last.threads,
        trouble="" if stacked else last.trouble,
    )


def _moved(looks: Sequence[Look]) -> bool:
    """Tell whether a rank has got on between the first look and the last.

    Its lines tell, or its numbers: a loop is always at the same lines, but counts. A
    rank that waits in one call is not even woken; one that goes from one such call to
    the next is.
    """
    stacked = [one for one in looks if one.stack]
    if looks[-1].collectives > looks[0].collectives:
        return True
    if len({_state(one.stack) for one in stacked}) > 1:
        return True
    name = _call(stacked[0].stack) if stacked else ""
    if name and looks[-1].carried - looks[0].carried > LARGE:
        return True  # a large message
    if not name or looks[0].collectives and name not in (*PEER_ARGUMENT, WORK):
        return False  # and signals wake it, if anything does
    return name not in ASKING and stacked[-1].woken > stacked[0].woken


def _state(stack: list[Frame]) -> tuple:
    """Return where a process is, and its numbers, without what libraries do to wait."""
    return tuple(
        (frame.file, frame.line, frame.name, _numbers(frame))
        for frame in stack
        if not frame.standard
    )


def _numbers(frame: Frame) -> tuple[str, ...]:
    return tuple(
        f"{name}={value}"
        for name, value in frame.values.items()
        if value[:1].isdecimal() or value[:2].lstrip("-").isdecimal()
    )


def _call(stack: list[Frame]) -> str:
    """Return the call of torch.distributed that a process is in; "" for none."""
    stand = find_stands([RankLog(stack=stack)])[0]
    return stand.name if stand.state == "waits" else ""


# --- what lies on the disk ---


def _silent(pid: int) -> float | None:
    """Return for how many seconds the output of `pid`, if a file, has not grown."""
    ages = []
    for stream in (1, 2):
        try:
            found = os.stat(f"/proc/{pid}/fd/{stream}")
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            ages.append(time.time() - found.st_mtime)
    return min(ages, default=None)


def _flight(environment: dict[str, str]) -> dict:
    """Return a rank's calls, if the lab has started it and it was asked for them."""
    log = environment.get("TORCHELASTIC_ERROR_FILE", os.devnull)
    return read_json(Path(log).with_name("flight.json")) or {}

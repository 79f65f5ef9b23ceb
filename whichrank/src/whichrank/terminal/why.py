"""`whichrank why`: find the job, look at it, and say who waits for whom."""

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from whichrank.explain import hang
from whichrank.explain.cause import Cause, Stand
from whichrank.explain.causes.beside import StoodStill, Unrecorded
from whichrank.explain.failure import Failure
from whichrank.explain.stands import find_stands
from whichrank.explain.states import (
    Away,
    Computes,
    Elsewhere,
    Halted,
    Left,
    Moves,
    Unknown,
    Unseen,
    Waits,
)
from whichrank.record.rank_log import RankLog
from whichrank.terminal.jobs import Machine
from whichrank.terminal.looks import BUSY, GONE, Seen, observe

LONGEST_LOOK = 8.0  # seconds: after these, what has not moved stands still
# Where a rank waits in C++ for the gradients of the others, of which nothing tells.
BACKWARD = "torch/autograd/"
LOOKED, NO_JOB, USAGE = 0, 1, 2  # exit codes
COMMON = fields(Stand)  # what a stand of any state has


def explain_here(pid: int | None, seconds: float) -> int:
    """Explain the job on this machine that `pid` belongs to; return the exit code."""
    machine = Machine()
    jobs = machine.jobs()
    if pid is not None:
        jobs = [job for job in jobs if pid in job.members] or [
            job for job in jobs if pid in job.above
        ]
        if not jobs and (job := machine.alone(pid)):
            jobs = [job]
    if machine.hidden:
        what = f"{machine.hidden} Python processes are not for us to see"
        print(f"note: {what} (sudo would see them)", file=sys.stderr)
    if not jobs:
        what = "no job is seen on this machine; `whichrank why PID` looks at any Python"
        what = what if pid is None else f"there is no Python process {pid}"
        print(f"whichrank: {what}", file=sys.stderr)
        return NO_JOB
    if len(jobs) > 1:
        print("There are several jobs. Choose one by a process of it:\n")
        for job in jobs:
            first = job.ranks[min(job.ranks)]
            print(f"  whichrank why {first.pid}    {job}")
        return USAGE
    job = jobs[0]
    print(f"{job}\n", flush=True)
    pids = {rank: process.pid for rank, process in job.ranks.items()}
    seen, watched = observe(pids, seconds)
    seen |= dict.fromkeys(job.gone, Seen(GONE))
    print(judge(seen, job.size, watched).report())
    return LOOKED


def judge(seen: Mapping[int, Seen], size: int, seconds: float) -> Failure:
    """Explain a job, in the words of a run that does not end.

    Args:
        seen: of its ranks on this machine, what we have seen.
        size: the number of all its ranks.
        seconds: for how long we have watched.
    """
    logs = [seen[r].log if r in seen else RankLog() for r in range(size)]
    stands = [_watched(stand, seen.get(stand.rank)) for stand in find_stands(logs)]
    others = size == 1 and stands[0].waits  # for whom it waits, and nobody has seen
    why = None if others else hang.diagnose(logs, stands)
    why = why or hang.does(stands)
    also: list[Cause] = [StoodStill(seconds=seconds, stands=tuple(stands))]
    works = [s.rank for s in stands if isinstance(s, Computes | Elsewhere)]
    if any(seen[rank].nccl for rank in works):
        also.append(Unrecorded())
    by_rank: dict[int, Cause | Stand] = {stand.rank: stand for stand in stands}
    return Failure("timeout", why, tuple(also), by_rank=by_rank, stands=stands)


def _watched(stand: Stand, seen: Seen | None) -> Stand:
    """Return what is known only of a process that was watched for a while."""
    if seen is None:
        return Away(stand.rank)
    same: dict[str, Any] = {each.name: getattr(stand, each.name) for each in COMMON}
    same["pid"] = seen.pid
    if not isinstance(stand, Left | Halted):
        if not seen.log.stack:
            return Unseen(**same, trouble=seen.trouble)
        if seen.moved:
            return Moves(**same, places=seen.places)
        if not stand.waits and seen.share >= BUSY:
            return Computes(**same, share=seen.share)
        if isinstance(stand, Elsewhere) and BACKWARD in seen.log.stack[0].file:
            return Waits(**same, name="backward")  # it computes next to nothing there
        if isinstance(stand, Unknown):
            return Elsewhere(**same)
    return replace(stand, pid=seen.pid)

"""`ddp-lab why`: find the job, look at it, and say who waits for whom."""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from ddp_lab.kit.terminal import seen as looks
from ddp_lab.kit.terminal.jobs import Job, Machine
from ddp_lab.kit.terminal.verdict import judge

LONGEST_LOOK = 8.0  # seconds: after these, what has not moved stands still
LOOKED, NO_JOB, USAGE = 0, 1, 2  # exit codes


def explain_here(pid: int | None, seconds: float, save: str | None) -> int:
    """Explain the job on this machine that `pid` belongs to; return the exit code."""
    machine = Machine()
    jobs = machine.jobs()
    if pid is not None:
        jobs = [job for job in jobs if pid in job.members] or [
            job for job in jobs if pid in job.above
        ]
        if not jobs and (job := machine.alone(pid)):
            jobs = [job]
    for user, count in machine.hidden.items():
        what = f"{count} Python processes of user {user} are not for us to see"
        print(f"note: {what}", file=sys.stderr)
    if not jobs:
        what = "no job is seen on this machine; `ddp-lab why PID` looks at any Python"
        if pid is not None:
            what = f"there is no Python process {pid}"
        print(f"ddp-lab: {what}", file=sys.stderr)
        return NO_JOB
    if len(jobs) > 1:
        print("There are several jobs. Choose one by a process of it:\n")
        for job in jobs:
            first = job.ranks[min(job.ranks)]
            print(f"  ddp-lab why {first.pid}    {job}")
        return USAGE
    job = jobs[0]
    print(f"{job}\n", flush=True)
    ranks, watched = looks.observe(job, seconds)
    code = LOOKED if save is None else _save(save, job, ranks, watched)
    _print(job, ranks, watched)
    return code


def _save(name: str, job: Job, ranks: dict[int, looks.Seen], watched: float) -> int:
    """Write what was seen, for `explain_files`; return the exit code."""
    path = Path(name or f"why-{socket.gethostname()}.json")
    try:
        looks.save(path, job, ranks, watched)
    except OSError as error:
        print(f"ddp-lab: not saved: {error}\n", file=sys.stderr)
        return USAGE
    print(f"saved in {path}; all of them together: ddp-lab why *.json\n")
    return LOOKED


def explain_files(names: Sequence[str]) -> int:
    """Explain a job of several machines from what was saved on each."""
    ranks: dict[int, looks.Seen] = {}
    watched, jobs = [], []
    try:
        for name in names:
            job, here, seconds = looks.load(Path(name))
            jobs.append(job)
            watched.append(seconds)
            for rank, seen in here.items():
                before = ranks.get(rank)
                if before is None or before.status == "away":
                    ranks[rank] = seen
                elif seen.status not in ("away", "gone"):
                    if before.status != "gone":
                        raise ValueError(f"rank {rank} is in two files: two jobs?")
                    ranks[rank] = seen
        if len({job.size for job in jobs}) > 1:
            raise ValueError("the files are of jobs with different numbers of ranks")
    except ValueError as error:
        print(f"ddp-lab: {error}", file=sys.stderr)
        return USAGE
    hosts = sorted({seen.host for seen in ranks.values() if seen.host})
    job = jobs[0]
    print(f"{job.program} ({job.launcher}, {job.size} ranks, on {', '.join(hosts)})\n")
    _print(job, dict(sorted(ranks.items())), min(watched))
    return LOOKED


def _print(job: Job, ranks: dict[int, looks.Seen], watched: float) -> None:
    verdict = judge(ranks, job.size, watched)
    print(verdict.failure.report())
    for note in verdict.notes:
        print(f"note: {note}")

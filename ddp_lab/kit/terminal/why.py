"""`ddp-lab why`: find the job, look at it, and say who waits for whom."""

import sys

from ddp_lab.kit.terminal import seen as looks
from ddp_lab.kit.terminal.jobs import Machine
from ddp_lab.kit.terminal.verdict import judge

LONGEST_LOOK = 8.0  # seconds: after these, what has not moved stands still
LOOKED, NO_JOB, USAGE = 0, 1, 2  # exit codes


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
    for user, count in machine.hidden.items():
        what = f"{count} Python processes of user {user} are not for us to see"
        print(f"note: {what}", file=sys.stderr)
    if not jobs:
        what = "no job is seen on this machine; `ddp-lab why PID` looks at any Python"
        if pid is not None:
            what = f"there is no Python process {pid}"
        print(f"ddp-lab: {what}", file=sys.stderr)
        for process in machine.others(jobs) if pid is None else []:
            print(f"  ddp-lab why {process.pid}    {process.program}", file=sys.stderr)
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
    verdict = judge(ranks, job.size, watched)
    print(verdict.failure.report())
    for note in verdict.notes:
        print(f"note: {note}")
    return LOOKED

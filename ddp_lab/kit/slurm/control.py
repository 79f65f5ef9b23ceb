"""What SLURM's commands say, and do for us; a controller may be slow, or silent.

That nothing is known of a job is no reason to take it for dead: None stands for that.
"""

import os
import subprocess
from collections.abc import Mapping

ANSWER_WAIT = 20.0  # seconds that SLURM has to answer
# Of what we may be a step ourselves, which would count as our wishes.
OURS = ("SLURM_CONF", "SLURM_JWT")
LIVES = ("RUNNING", "SUSPENDED", "CONFIGURING")
GONE = "GONE"


def clean(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what SLURM would take for wishes."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("SLURM_") or name in OURS
    }


def ask(*words: str, wait: float = ANSWER_WAIT) -> str | None:
    """Return what a command of SLURM prints; None if it fails, or does not end."""
    env, pipe = clean(os.environ), subprocess.PIPE
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, stdin=nothing, stdout=pipe, stderr=nothing, env=env, timeout=wait
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _queue(*words: str) -> list[list[str]] | None:
    """Return what squeue lists of ours: words of each line; None if it does not say."""
    said = ask("squeue", "--noheader", "--user", str(os.getuid()), *words)
    return (
        None if said is None else [line.split(maxsplit=1) for line in said.splitlines()]
    )


def state(job: str) -> str | None:
    """Return the state of one of our jobs; `GONE` if there is none; None: not known."""
    found = _queue("--format", "%i %T")
    return None if found is None else dict(found).get(job, GONE)


def lives(job: str) -> bool:
    """Tell whether a job goes on, as far as anybody knows."""
    return state(job) in (None, *LIVES)


def reason(name: str) -> str:
    """Return why the job with this name waits in the queue; "" if it does not."""
    found = _queue("--name", name, "--states", "PENDING", "--format", "%i %r")
    return found[0][1] if found else ""


def steps(name: str) -> list[str] | None:
    """Return our steps whose names begin with `name`; None if that is not known."""
    found = _queue("--steps", "--format", "%i %j")
    if found is None:
        return None
    return [line[0] for line in found if line[1:] and line[1].startswith(name)]


def cancel(*words: str) -> None:
    """Cancel jobs or steps; they may have ended already."""
    ask("scancel", "--quiet", *words)


def cancel_named(name: str) -> None:
    """Cancel the job with a name that only we have given, to only one."""
    cancel("--user", str(os.getuid()), "--name", name)

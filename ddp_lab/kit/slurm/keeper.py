"""Hold machines of SLURM for as long as somebody holds our stdin open.

    python -IS keeper.py NAME salloc ARGUMENTS...    an allocation of our own
    python -IS keeper.py NAME                        that of others, in which we work

What salloc says comes out at our stdout, and once the machines are there, a line
`ddp_lab JOB NODES`. When our stdin closes, because whoever started us is done or dead,
everything of this NAME is cancelled: the allocation, also while it waits in the queue,
or the steps in that of others.

salloc ends the allocation when its command ends, which is `cat` here, reading from us,
and what follows it should salloc be killed. So nothing stays if we are killed, either.
"""

import os
import select
import subprocess
import sys
import time

HOLD = """
echo "ddp_lab $SLURM_JOB_ID $SLURM_JOB_NODELIST"
cat
exec scancel --quiet "$SLURM_JOB_ID"
"""
SALLOC_WAIT = 10.0  # seconds that salloc has to end
TIDY_WAIT = 2.0  # seconds that steps have to end by themselves
STEP_WAIT = 10.0  # seconds after which we leave it to SLURM


def steps(name: str) -> list[str]:
    """Return our steps whose names begin with `name`."""
    words = ["squeue", "--steps", "--noheader", "--user", str(os.getuid())]
    done = subprocess.run([*words, "--format", "%i %j"], capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [line[0] for line in lines if line[1:] and line[1].startswith(name)]


def cancel(*words: str) -> None:
    """Cancel jobs or steps; they may have ended already."""
    subprocess.run(["scancel", "--quiet", *words], stderr=subprocess.DEVNULL)


def main(name: str, *words: str) -> None:
    """Wait until our stdin closes, or salloc gives up; leave nothing."""
    if words:
        hold(name, *words)
    else:
        sys.stdin.buffer.read()
        end(name)


def hold(name: str, *words: str) -> None:
    """Hold an allocation of our own; see `main`."""
    command = [*words, "--job-name", name, "sh", "-c", HOLD]
    salloc = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    while salloc.poll() is None and not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
    end(name)
    cancel("--user", str(os.getuid()), "--name", name)
    try:
        salloc.communicate(timeout=SALLOC_WAIT)
    except subprocess.TimeoutExpired:
        salloc.kill()


def end(name: str) -> None:
    """End our steps; they have a moment to do so themselves."""
    cancel("--signal", "TERM", *steps(name))
    begin = time.monotonic()
    while (left := steps(name)) and time.monotonic() < begin + STEP_WAIT:
        if time.monotonic() > begin + TIDY_WAIT:
            cancel(*left)
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])

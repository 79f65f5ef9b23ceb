"""Hold machines of SLURM for as long as somebody holds our stdin open.

    python -IS keeper.py NAME salloc ARGUMENTS...    an allocation of our own
    python -IS keeper.py NAME JOB                    one in which others work too

What salloc says comes out at our stdout, and once the machines are there, a line
`ddp_lab JOB NODES`. When our stdin closes, because whoever started us is done or dead,
everything of this NAME is cancelled: the allocation, also while it waits in the queue,
or the steps in that of others.

salloc ends the allocation when its command ends, which is `cat` here, reading from us.
So nothing stays either if we are killed.
"""

import os
import select
import subprocess
import sys

HOLD = 'echo "ddp_lab $SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat'
SALLOC_WAIT = 10.0  # seconds that salloc has to end


def steps(job: str, name: str) -> list[str]:
    """Return the steps of a job whose names begin with `name`."""
    words = ["squeue", "--steps", "--noheader", "--jobs", job, "--format", "%i %j"]
    done = subprocess.run(words, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [line[0] for line in lines if line[1:] and line[1].startswith(name)]


def cancel(*words: str) -> None:
    """Cancel jobs or steps; they may have ended already."""
    subprocess.run(["scancel", "--quiet", *words], stderr=subprocess.DEVNULL)


def main(name: str, *words: str) -> None:
    """Wait until our stdin closes, or salloc gives up; leave nothing."""
    if words[0] != "salloc":
        sys.stdin.buffer.read()
        for step in steps(words[0], name):
            cancel(step)
        return
    command = [*words, "--job-name", name, "sh", "-c", HOLD]
    salloc = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    while salloc.poll() is None and not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
    cancel("--user", str(os.getuid()), "--name", name)
    salloc.terminate()
    try:
        salloc.wait(SALLOC_WAIT)
    except subprocess.TimeoutExpired:
        salloc.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Hold machines of SLURM for as long as somebody holds our stdin open.

    python -IS keeper.py NAME salloc ARGUMENTS...    an allocation of our own
    python -IS keeper.py NAME                        that of others, in which we work

What salloc says comes out at our stdout, and once the machines are there, a line
`ddp_lab JOB NODES`. When our stdin closes, because whoever started us is done or dead,
everything of this NAME is cancelled: the allocation, also while it waits in the queue,
or the steps in that of others. No other allocation has this name.

salloc ends the allocation when its command ends, which is `cat` here, reading from us,
and what follows it should salloc be killed. So nothing stays if we are killed, either.
"""

import select
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # which -I has left out

from ddp_lab.kit.slurm import control  # noqa: E402

HOLD = """
echo "ddp_lab $SLURM_JOB_ID $SLURM_JOB_NODELIST"
cat
exec scancel --quiet "$SLURM_JOB_ID"
"""
SALLOC_WAIT = 10.0  # seconds that salloc has to end
TIDY_WAIT = 2.0  # seconds that steps have to end by themselves
STEP_WAIT = 10.0  # seconds after which we leave it to SLURM


def main(name: str, *words: str) -> None:
    """Wait until our stdin closes, or salloc gives up; leave nothing."""
    if words:
        hold(name, *words)
    else:
        sys.stdin.buffer.read()
        end_steps(name)


def hold(name: str, *words: str) -> None:
    """Hold an allocation of our own; see `main`."""
    command = [*words, "--job-name", name, "sh", "-c", HOLD]
    salloc = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    while salloc.poll() is None and not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
    end_steps(name)
    control.cancel_named(name)
    try:
        salloc.communicate(timeout=SALLOC_WAIT)
    except subprocess.TimeoutExpired:
        salloc.kill()


def end_steps(name: str, tidy: float = TIDY_WAIT, most: float = STEP_WAIT) -> None:
    """End our steps; they have `tidy` seconds to do so themselves."""
    if steps := control.steps(name):
        control.cancel("--signal", "TERM", *steps)
    begin = time.monotonic()
    while (left := control.steps(name)) != [] and time.monotonic() < begin + most:
        if left and time.monotonic() > begin + tidy:
            control.cancel(*left)
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])

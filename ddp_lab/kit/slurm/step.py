"""Run one command on several nodes of SLURM: start srun, and let its nodes meet.

    python -IS step.py FOLDER

The guard starts this file instead of torchrun. FOLDER/plan.json says how to call srun,
which starts on_node.py on each node. The first node looks for a free port and says it
on its stdout, which is srun's; we say it to all, on srun's stdin. So no node needs a
file of another one, which a shared folder may show late.

srun does not carry the run's mark to the nodes: what is there, SLURM ends.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # which -I has left out

from ddp_lab.kit.record import names  # noqa: E402
from ddp_lab.kit.run import guard  # noqa: E402
from ddp_lab.kit.run.limits import FOLLOW, LEAVE, TICK  # noqa: E402
from ddp_lab.kit.slurm import control  # noqa: E402


def main(folder: Path) -> int:
    """Run the command until it has ended everywhere; return the exit code."""
    plan = json.loads((folder / names.PLAN).read_text())
    # srun hears of an end by itself: it carries the mark, too, as a limit.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    env = {name: v for name, v in os.environ.items() if name != guard.MARK}
    pipe = subprocess.PIPE
    srun = subprocess.Popen(plan["srun"], stdin=pipe, stdout=pipe, env=env)
    assert srun.stdin and srun.stdout
    said = srun.stdout.readline()
    try:
        srun.stdin.write(said)
        srun.stdin.close()
    except BrokenPipeError:
        pass  # it could not start, and has said why
    failed_at = 0.0
    while srun.poll() is None:
        if plan["fixed"] and not failed_at and any(_codes(folder)):
            failed_at = time.time()
        if failed_at and time.time() > failed_at + FOLLOW:
            # Not to srun, which would kill them.
            (folder / names.ASKED).touch()
            control.cancel("--signal", "TERM", said.split()[1].decode())
            failed_at = time.time() + LEAVE
            plan["fixed"] = False
        time.sleep(TICK)
    if srun.returncode < 0:  # somebody has killed it: end alike
        os.kill(os.getpid(), -srun.returncode)
    codes = _codes(folder)
    well = len(codes) == len(plan["words"]) and codes.count(0) >= plan["least"]
    return 0 if well else max([srun.returncode, *codes, 1])


def _codes(folder: Path) -> list[int]:
    """Return how the agents have ended, of those that have."""
    files = folder.glob(f"{names.node('*')}/{names.EXIT}")
    return [json.loads(path.read_text())["code"] for path in files]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""Be one node of a run on SLURM: start its torchrun, and leave word of how it ended.

    srun ... python -IS agent.py FOLDER

FOLDER is the run's, which all nodes see; plan.json in it says what each of them runs.
In it we make `node_N`, the log folder of node N's torchrun, with `out`, `err` and
`exit.json` as on a node that is played (nodes.py). step.py, behind our stdin and
stdout, tells every node the port that the first one has found.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # which -I has left out

from ddp_lab.kit.run import nodes, proxy, warm  # noqa: E402


def main(folder: Path, env: Any = os.environ) -> int:
    """Run this node's torchrun until it ends; return its exit code."""
    node = int(env["SLURM_NODEID"])
    if node == 0:
        step = f"{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}"
        print(nodes.free_port(), step, flush=True)
    said = sys.stdin.readline().split()
    plan = json.loads((folder / "plan.json").read_text())
    home = folder / f"node_{node}"
    home.mkdir()
    socket = server(plan["server"] + env["SLURMD_NODENAME"]) if plan["server"] else "-"
    python = warm.write_python(home, socket)
    cold = [sys.executable] if socket == "-" else [python]
    words = [*cold, "-m", "torch.distributed.run"]
    words += ["--redirects", "3", "--log-dir", str(home)]
    words += [word.replace("{port}", said[0]) for word in plan["words"][node]]
    asked = []  # by step.py: all that is on the node, torchrun included
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    with open(home / "out", "wb") as out, open(home / "err", "wb") as err:
        torchrun = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env | {proxy.NODE: str(node), "PYTHON_EXEC": python},
        )
    code = torchrun.wait()
    part, done = home / "exit.part", "another node has failed" if asked else ""
    part.write_text(json.dumps({"code": code, "time": time.time(), "done": done}))
    part.replace(home / "exit.json")
    return code if code >= 0 else 128 - code


def server(folder: str) -> str:
    """Return the socket of this node's fork server, once it is ready; "-" for none."""
    deadline, begun = time.monotonic() + warm.READY_WAIT, False
    while not os.path.exists(f"{folder}/ready"):
        gone = begun and not os.path.exists(folder)
        if gone or time.monotonic() > deadline:
            return "-"
        begun = os.path.exists(folder)
        time.sleep(nodes.TICK)
    return f"{folder}/socket"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""Be one node of a run on SLURM: start its torchrun, and leave word of how it ended.

    srun ... python -IS on_node.py FOLDER

FOLDER is the run's, which all nodes see; plan.json in it says what each of them runs.
In it we make `node_N`, the log folder of node N's torchrun, with `out`, `err` and
`exit.json` as on a node that is played (room.py), and its name in `host`. step.py,
behind our stdin and stdout, tells every node the port that the first one has found.

We are this node's guard, too: when torchrun has ended, so has all that it has started.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # which -I has left out

from ddp_lab.kit.record import names  # noqa: E402
from ddp_lab.kit.run import guard, proxy, warm  # noqa: E402
from ddp_lab.kit.run.limits import TICK  # noqa: E402
from ddp_lab.kit.run.options import AGENT, PORT  # noqa: E402
from ddp_lab.kit.run.ports import free_port  # noqa: E402


def main(folder: Path) -> int:
    """Run this node's torchrun until it ends; return its exit code."""
    node = int(os.environ["SLURM_NODEID"])
    if node == 0:
        step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
        print(free_port(), step, flush=True)
    said = sys.stdin.readline().split()
    plan = json.loads((folder / names.PLAN).read_text())
    home = folder / names.node(node)
    home.mkdir()
    (home / names.HOST).write_text(os.environ["SLURMD_NODENAME"])
    socket = server(plan["server"] + os.environ["SLURMD_NODENAME"])
    python = warm.write_python(home, socket)
    words = [sys.executable if socket == "-" else python]
    words += [*AGENT, "--log-dir", str(home)]
    words += [word.replace(PORT, said[0]) for word in plan["words"][node]]
    os.environ |= {proxy.NODE: str(node), "PYTHON_EXEC": python}
    for number, name in ((1, names.OUT), (2, names.ERR)):
        os.dup2(os.open(home / name, os.O_WRONLY | os.O_CREAT), number)
    asked = []  # by step.py: all that is on the node, torchrun included
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    torchrun = guard.start(plan["mark"], words)
    code = os.waitstatus_to_exitcode(os.waitpid(torchrun, 0)[1])
    done = "another node has failed" if asked else ""
    end = {"code": code, "time": time.time(), "done": done}
    names.write(home / names.EXIT, end)
    guard.end_all(plan["mark"])  # whatever the ranks have left behind
    return code if code >= 0 else 128 - code


def server(folder: str) -> str:
    """Return the socket of this node's fork server, once it is ready; "-" for none.

    Args:
        folder: where it is to be; a relative path for none.
    """
    deadline, begun = time.monotonic() + warm.READY_WAIT, False
    while not os.path.exists(f"{folder}/ready"):
        gone = begun and not os.path.exists(folder)
        if gone or not os.path.isabs(folder) or time.monotonic() > deadline:
            return "-"
        begun = os.path.exists(folder)
        time.sleep(TICK)
    return f"{folder}/socket"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

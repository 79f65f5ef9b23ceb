"""Be one node of a run on SLURM: srun starts this file once on each node.

    python -I on_node.py run FOLDER     its torchrun, until it ends
    python -I on_node.py see FOLDER     print whether its ranks get on (probe.py)
    python -I on_node.py look FOLDER    leave word of where its ranks stand (probe.py)

FOLDER is the run's, which all nodes see; plan.json in it says what each of them runs.
In it we make `node_N`, the log folder of node N's torchrun, with `out`, `err` and
`exit.json` as of any run on several nodes, and its name in `host`.

torchrun has a guard here, too (guard.py). So what it has started ends with it, or with
us if SLURM kills us.
"""

import json
import os
import signal
import sys
import time
from dataclasses import astuple, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # which -I has left out

from whichrank.record import names  # noqa: E402
from whichrank.record.lives import node_folders  # noqa: E402
from whichrank.record.plan import AgentEnd, Plan  # noqa: E402
from whichrank.run import probe  # noqa: E402
from whichrank.run.channels import NODE, PYTHON_EXEC  # noqa: E402
from whichrank.run.command import AGENT  # noqa: E402
from whichrank.run.guarded import Guarded  # noqa: E402
from whichrank.run.limits import FOLLOW, TICK  # noqa: E402
from whichrank.run.starter import write_python  # noqa: E402


@dataclass(frozen=True)
class StepPlan(Plan):
    """What plan.json says of a step."""

    mark: str = ""
    """That of the run on the nodes."""
    words: list[list[str]] = field(default_factory=list)
    """torchrun's, of each node."""
    fixed: bool = True
    """Whether every node is needed."""


def run(folder: Path, node: int) -> int:
    """Run this node's torchrun until it ends; return its exit code."""
    plan = StepPlan(**json.loads((folder / names.PLAN).read_text()))
    home = folder / names.node(node)
    home.mkdir()
    (home / names.HOST).write_text(os.environ["SLURMD_NODENAME"])
    python = {PYTHON_EXEC: write_python(home, "-"), NODE: str(node)}
    words = [*AGENT, "--log-dir", str(home), *plan.words[node]]
    signals: list[int] = []  # of SLURM, which sends them to all its processes here
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    command = [sys.executable, *words]
    torchrun = Guarded(command, plan.mark, home, os.environ | python)
    while torchrun.runs():
        time.sleep(TICK)
    code = torchrun.end()
    why = "SLURM has ended it" if signals else ""
    AgentEnd(code, time.time(), why=why).write(home)
    if code and plan.fixed:  # then srun ends the others, which may still follow
        wait_for_all(folder, len(plan.words))
    return code if code >= 0 else 128 - code


def wait_for_all(folder: Path, nodes: int) -> None:
    """Wait until each node has ended, but not for long."""
    deadline = time.monotonic() + FOLLOW
    while time.monotonic() < deadline:
        if sum((home / names.EXIT).exists() for home in node_folders(folder)) == nodes:
            return
        time.sleep(TICK)


def see(folder: Path, node: int) -> int:
    """Print what a watchdog has to know of this node."""
    pulses = probe.see_ranks(folder, node).items()
    answer = {f"{node} {name}": astuple(each) for name, each in pulses}
    print("see", json.dumps(answer), flush=True)
    return 0


def look(folder: Path, node: int) -> int:
    """Look at this node's ranks."""
    probe.look_at_ranks(folder, node)
    return 0


if __name__ == "__main__":
    what = {"run": run, "see": see, "look": look}[sys.argv[1]]
    sys.exit(what(Path(sys.argv[2]), int(os.environ["SLURM_NODEID"])))

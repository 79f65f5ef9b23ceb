"""A run on the nodes of a SLURM job: one step of it, a torchrun on each node.

We ask for no machines. A run is inside an allocation that is there already, one of
`salloc`, say, and there `--nnodes N` is one srun:

    launcher    live.py, with `SlurmStep`
     |
    guard       guard.py
     |
    srun  ....  on_node.py  ->  torchrun  ->  proxy  ->  rank      on each node

The guard ends srun with a signal, and then SLURM kills all that the step has on its
nodes. A run's folder lies in build/runs of the current one, because all nodes have to
see it, like the Python that runs this.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from whichrank.record import names
from whichrank.record.files import read
from whichrank.record.lives import node_folders
from whichrank.record.plan import Played, read_end
from whichrank.record.words import signal_name
from whichrank.run.channels import NNODES, RUN
from whichrank.run.command import PORT, Command
from whichrank.run.guarded import Guarded
from whichrank.run.here import environment
from whichrank.run.place import Place
from whichrank.run.ports import PORTS
from whichrank.run.result import refused
from whichrank.run.starter import Starter, Tell
from whichrank.run.watchdog import Pulse
from whichrank.slurm.on_node import StepPlan

RUNS = Path("build", "runs")  # below the current folder
ON_NODE = Path(__file__).with_name("on_node.py")
ANSWER_WAIT = 30.0  # seconds that SLURM, and a look on all nodes, may take
END_WAIT = 15.0  # seconds that SLURM has to end a step
OURS = ("SLURM_CONF", "SLURM_JWT")  # which are no wishes
# One task on each node, with all that the job has there, beside any other step.
STEP = "--overlap --ntasks-per-node=1 --mpi=none --wait=0 --quiet"
CANCELLED = re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([\w ]+))?")


def choose_slurm(command: Command, starter: Starter) -> "SlurmStep | None":
    """Run a command for several nodes, if they are in the job around us."""
    command = spread(command)
    return SlurmStep(command) if command.is_for_all and takes(command) else None


def takes(command: Command) -> bool:
    """Tell whether a command for several nodes finds them in the job around us."""
    around = os.environ.get("SLURM_JOB_NUM_NODES", "0")
    enough = command.nodes[1] <= int(around) and "SLURM_JOB_ID" in os.environ
    return enough and not command.elsewhere


def spread(command: Command) -> Command:
    """Return a command that says nothing of nodes, for several of them.

    That is for WHICHRANK_NNODES=2, in a job. The ranks stay as many, so a command
    whose ranks cannot be shared out evenly stays as it is.
    """
    nodes, each = os.environ.get(NNODES) or "1", command.value("--nproc-per-node")
    several = nodes.isdecimal() and int(nodes) > 1 and "SLURM_JOB_ID" in os.environ
    if not several or command.finds_others or not each or not each.isdecimal():
        return command
    if int(each) % int(nodes):
        return command
    there = ("--nproc-per-node", str(int(each) // int(nodes)))
    return command.without("--nproc-per-node").having(("--nnodes", nodes), there)


def clean(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what srun would take for wishes."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("SLURM_") or name in OURS
    }


def ask(*words: str) -> str:
    """Return what a command of SLURM prints; nothing if it fails, or does not end."""
    nothing = subprocess.DEVNULL
    try:
        return subprocess.run(
            words,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=nothing,
            env=clean(os.environ),
            timeout=ANSWER_WAIT,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""


class SlurmStep(Place):
    """One run on nodes of the job around us.

    Args:
        command: that of torchrun, meant for all its nodes.
    """

    def __init__(self, command: Command):
        super().__init__()
        self.home, self.env = RUNS.absolute(), environment() | command.own_store
        self.command, self.nodes = command, command.nodes[1]
        self.job, self.name = os.environ["SLURM_JOB_ID"], f"whichrank-{self.mark}"
        self.hosts: list[str] = []

    def wait(self, tell: Tell) -> None:
        """Ask for the names of the nodes."""
        short = os.environ["SLURM_JOB_NODELIST"]  # n[1-2], say
        self.hosts = ask("scontrol", "show", "hostnames", short).split()[: self.nodes]
        if not self.hosts:
            raise refused(f"scontrol does not say which nodes {short} stands for")

    def start(self) -> Guarded:
        """Start the step."""
        port = str(random.choice(PORTS))
        nodes, address = range(self.nodes), self.hosts[0]
        each = [self.command.at(node, address) for node in nodes]
        fixed = self.command.is_fixed
        plan = StepPlan(
            meets=[node.meets() for node in each],
            # Another one than here: SLURM ends what is there, and no guard of ours.
            mark=self.mark[::-1],
            words=[[w.replace(PORT, port) for w in node.words] for node in each],
            fixed=fixed,
        )
        (self.folder / names.PLAN).write_text(json.dumps(asdict(plan)))
        how = f"by SLURM, in job {self.job}, on {', '.join(self.hosts)}"
        (self.folder / names.PLAYED).write_text(json.dumps(asdict(Played(how))))
        return Guarded(
            self._srun("run", f"--kill-on-bad-exit={int(fixed)}"),
            self.mark,
            self.folder,
            clean(self.env),
        )

    def _srun(self, what: str, *more: str) -> list[str]:
        """Return the command that starts on_node.py on each node."""
        where = ["--jobid", self.job, "--nodelist", ",".join(self.hosts)]
        where += ["--nodes", str(self.nodes), "--ntasks", str(self.nodes)]
        name = ["--job-name", self.name, f"--export=ALL,{RUN}="]
        there = [sys.executable, "-I", str(ON_NODE), what, str(self.folder)]
        srun = shutil.which("srun") or "srun"
        return [srun, *where, *STEP.split(), *name, *more, *there]

    def see(self) -> dict[str, Pulse]:
        """Let each node see its ranks; one that is too busy for it may start them."""
        answers = re.findall(r"^see (\{.*\})$", ask(*self._srun("see")), re.M)
        nodes = [json.loads(answer).items() for answer in answers]
        pulses = {name: Pulse(*values) for node in nodes for name, values in node}
        silent = {"a node that does not answer": Pulse(starts=True)}
        return pulses if len(answers) == self.nodes else pulses | silent

    def look(self) -> None:
        """Let each node look at its ranks."""
        ask(*self._srun("look"))

    def end(self, stopped: bool) -> None:
        """Cancel the step, if anything of it is left."""
        deadline = time.monotonic() + END_WAIT
        while stopped and (left := self._steps()) and time.monotonic() < deadline:
            ask("scancel", "--quiet", *left)
            time.sleep(0.5)

    def _steps(self) -> list[str]:
        """Return the steps of this run, by their numbers."""
        words = ["--noheader", "--steps", "--jobs", self.job, "--format", "%i %j"]
        lines = ask("squeue", *words).splitlines()
        return [line.split()[0] for line in lines if line.endswith(self.name)]

    def ended_by(self, code: int) -> Sequence[str]:
        """Tell of SLURM, and of srun."""
        ends = [read_end(home) for home in node_folders(self.folder)]
        if any(end.code and end.by_itself for end in ends):
            return ()  # a torchrun has failed; SLURM has ended what was left
        if cancelled := CANCELLED.search(read(self.folder / names.ERR)):
            return "slurm", (cancelled[1] or "cancelled").strip().lower()
        return ("srun", signal_name(-code)) if code < 0 else ()

"""A run on the nodes of a SLURM job: one step of it, a torchrun on each node.

The lab asks for no machines. It runs inside an allocation that is there already, one of
`salloc`, say, and there `--nnodes N` is one srun:

    launcher    live.py, with `SlurmStep`
     |
    guard       guard.py
     |
    srun  ....  on_node.py  ->  torchrun  ->  proxy  ->  rank      on each node

The guard ends srun with a signal, and then SLURM kills all that the step has on its
nodes. A run's folder lies in build/runs of the repository, because all nodes have to
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
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.record import names
from ddp_lab.kit.record.files import read, read_json
from ddp_lab.kit.record.lives import node_folders
from ddp_lab.kit.record.words import signal_name
from ddp_lab.kit.run import guard
from ddp_lab.kit.run import options as opts
from ddp_lab.kit.run.guarded import Guarded
from ddp_lab.kit.run.here import environment
from ddp_lab.kit.run.options import Option
from ddp_lab.kit.run.place import Place
from ddp_lab.kit.run.ports import PORTS
from ddp_lab.kit.run.result import refused
from ddp_lab.kit.run.warm import Tell
from ddp_lab.kit.run.watchdog import Pulse

NNODES = "DDP_LAB_NNODES"
RUNS = ROOT / "build" / "runs"
ON_NODE = Path(__file__).with_name("on_node.py")
ANSWER_WAIT = 30.0  # seconds that SLURM, and a look on all nodes, may take
END_WAIT = 15.0  # seconds that SLURM has to end a step
OURS = ("SLURM_CONF", "SLURM_JWT")  # which are no wishes
# One task on each node, with all that the job has there, beside any other step.
STEP = "--overlap --ntasks-per-node=1 --mpi=none --wait=0 --quiet"
CANCELLED = re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([\w ]+))?")


def takes(options: Sequence[Option]) -> bool:
    """Tell whether a command for several nodes finds them in the job around us."""
    around = os.environ.get("SLURM_JOB_NUM_NODES", "0")
    enough = opts.nodes(options)[1] <= int(around) and "SLURM_JOB_ID" in os.environ
    return enough and not opts.elsewhere(options)


def spread(options: Sequence[Option]) -> list[Option]:
    """Return the options of a command that says nothing of nodes, for several of them.

    That is for `make lab NNODES=2`, in a job. The ranks stay as many, so a command
    whose ranks cannot be shared out evenly stays as it is.
    """
    nodes, each = os.environ.get(NNODES) or "1", opts.value(options, "--nproc-per-node")
    several = nodes.isdecimal() and int(nodes) > 1 and "SLURM_JOB_ID" in os.environ
    own = any(opts.OWN_RENDEZVOUS.match(option[0]) for option in options)
    if not several or own or not each or not each.isdecimal() or int(each) % int(nodes):
        return list(options)
    there = ["--nproc-per-node", str(int(each) // int(nodes))]
    return [*opts.without(options, "--nproc-per-node"), ["--nnodes", nodes], there]


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
        options: those of torchrun.
        program: the program and its arguments.
    """

    def __init__(self, options: Sequence[Option], program: Sequence[str]):
        super().__init__()
        self.home, self.env = RUNS, environment()
        self.options, self.program = list(options), list(program)
        self.nodes = opts.nodes(options)[1]
        self.job, self.name = os.environ["SLURM_JOB_ID"], f"ddp_lab-{self.mark}"
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
        each = [opts.at(node, self.options, address) for node in nodes]
        words = [opts.words(options, self.program) for options in each]
        fixed = opts.is_fixed(self.options)
        plan = {
            # Another one than here: SLURM ends what is there, and no guard of ours.
            "mark": self.mark[::-1],
            "words": [[w.replace(opts.PORT, port) for w in node] for node in words],
            "meets": [opts.meets(options) for options in each],
            "fixed": fixed,
        }
        (self.folder / names.PLAN).write_text(json.dumps(plan))
        how = f"by SLURM, in job {self.job}, on {', '.join(self.hosts)}"
        played = {"how": how, "typed": [], "left_out": []}
        (self.folder / names.PLAYED).write_text(json.dumps(played))
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
        name = ["--job-name", self.name, f"--export=ALL,{guard.MARK}="]
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
        ends = [read_json(home / names.EXIT) for home in node_folders(self.folder)]
        if any(end and end["code"] and not end["done"] for end in ends):
            return ()  # a torchrun has failed; SLURM has ended what was left
        if cancelled := CANCELLED.search(read(self.folder / names.ERR)):
            return "slurm", (cancelled[1] or "cancelled").strip().lower()
        return ("srun", signal_name(-code)) if code < 0 else ()

"""The door to SLURM: runs on the machines of a cluster, by the same command.

lease.py has the machines. Each run is a step of the job:

    launcher    live.py, with `Sent`
     |
    guard       guard.py
     |
    step.py     on this machine
     |
    srun  ....  on_node.py  ->  torchrun  ->  proxy  ->  rank      on each node

A run's folder lies in build/runs of the repository, which all nodes have to see, and so
the Python that runs this. Each node has a fork server, and so warm starts (warm.py).
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.record import names
from ddp_lab.kit.record.files import read
from ddp_lab.kit.record.words import signal_name
from ddp_lab.kit.run import options as of
from ddp_lab.kit.run.guarded import Guarded
from ddp_lab.kit.run.here import environment
from ddp_lab.kit.run.limits import Limits
from ddp_lab.kit.run.options import Option
from ddp_lab.kit.run.place import Place
from ddp_lab.kit.run.probe import Progress, done_in
from ddp_lab.kit.run.warm import READY_WAIT, Tell
from ddp_lab.kit.slurm import control, keeper
from ddp_lab.kit.slurm.lease import ASKED, END_WAIT, LEASE, Allocation, nodes_around
from ddp_lab.kit.slurm.lease import spread as nodes_to_spread

RUNS = ROOT / "build" / "runs"
HERE = Path(__file__).parent
LOOK_WAIT = 30.0  # seconds that all nodes have to look at their ranks
CANCELLED = re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([\w ]+))?")
FAILED = re.compile(r"Node failure on (\S+)")
REASONS = {
    "TIME LIMIT": "the job's time was up",
    "NODE FAILURE": "a node has failed",
    "PREEMPTION": "another job was given its nodes",
}
LOOK = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ddp_lab.kit.run import probe
look = probe.look_at_ranks(Path(sys.argv[2]), int(os.environ["SLURM_NODEID"]))
print("used", look.used)
"""
SWEEP = """
import sys
sys.path.insert(0, sys.argv[1])
from ddp_lab.kit.run import guard
guard.end_all(sys.argv[2], grace=0)
"""


def takes(options: Sequence[Option]) -> bool:
    """Tell whether a command of torchrun with these options is one for SLURM."""
    if of.has(options, *of.OF_A_PLACE):
        return False
    asked = bool(os.environ.get(ASKED))
    return asked or 1 < of.nodes(options)[1] <= nodes_around()


def spread(options: Sequence[Option]) -> list[list[Option]]:
    """Return the options of each node; see `DDP_LAB_NNODES`."""
    each = of.value(options, "--nproc-per-node") or "1"
    rest = of.without(options, "--nnodes", "--nproc-per-node", "--standalone")
    asked = of.value(options, "--nnodes")
    spread = 1 if ["--standalone"] in options else nodes_to_spread()
    if asked or not each.isdecimal():
        asked = asked or str(spread)
        counts = [each] * of.nodes([["--nnodes", asked]])[1]
    else:
        ranks = int(each)
        nodes = max(1, min(ranks, spread))
        asked = str(nodes)
        counts = [str(ranks // nodes + (n < ranks % nodes)) for n in range(nodes)]
    return [[["--nnodes", asked], ["--nproc-per-node", n], *rest] for n in counts]


class Sent(Place):
    """One run on the machines of SLURM.

    Args:
        options: those of torchrun.
        program: the program and its arguments.
        cold: as of `Here`.
    """

    def __init__(self, options: Sequence[Option], program: Sequence[str], cold: bool):
        super().__init__()
        self.home, self.env = RUNS, environment()
        self.by_node = spread(options)
        self.program, self.cold = list(program), cold
        self.allocation: Allocation | None = None
        self.name, self.suspended = "", False
        # Another one than here: what is there is no guard's of this machine, even where
        # a test's nodes are this machine.
        self.mark_there = self.mark[::-1]

    def wait(self, tell: Tell) -> None:
        """Wait for the machines."""
        self.allocation = LEASE.allocation(len(self.by_node), tell)
        self.name = f"{LEASE.name}-{self.mark}"

    def start(self) -> Guarded:
        """Start a step."""
        assert self.allocation
        run = str(self.folder)
        address = _address(self.allocation.hosts[0])
        at = [of.at(node, each, address) for node, each in enumerate(self.by_node)]
        there = [sys.executable, "-IS", str(HERE / "on_node.py"), run]
        plan = {
            "srun": [*self._srun(), *there],
            "mark": self.mark_there,
            "server": "" if self.cold else LEASE.warm(self.env),
            "words": [of.words(options, self.program) for options in at],
            "meets": [of.meets(options, self.program) for options in at],
            "least": of.nodes(self.by_node[0])[0],
            "fixed": of.is_fixed(self.by_node[0]),
        }
        (self.folder / names.PLAN).write_text(json.dumps(plan))
        played = {"how": self._how(), "typed": [], "left_out": []}
        (self.folder / names.PLAYED).write_text(json.dumps(played))
        words = [sys.executable, "-IS", str(HERE / "step.py"), run]
        return Guarded(words, self.mark, self.folder, control.clean(self.env))

    def _srun(self, name: str = "") -> list[str]:
        assert self.allocation
        return self.allocation.srun(len(self.by_node), name or self.name)

    def _how(self) -> str:
        """Say where the ranks are."""
        assert self.allocation
        counts = [of.value(options, "--nproc-per-node") for options in self.by_node]
        places = [
            f"{count} rank{'s' * (count != '1')} on {host}"
            for count, host in zip(counts, self.allocation.hosts, strict=False)
        ]
        return f"by SLURM, in job {self.allocation.job}: {', '.join(places)}"

    def look(self, last: bool = False) -> Progress:
        """Let each node look at its ranks, unless SLURM has suspended all there."""
        assert self.allocation
        self.suspended = control.state(self.allocation.job) == "SUSPENDED"
        if self.suspended:
            return Progress(done_in(self.folder), None)
        said = self._on_each_node(LOOK, str(self.folder))
        used = re.findall(r"used ([\d.e-]+)", said or "")
        whole = len(used) == len(self.by_node)
        return Progress(done_in(self.folder), sum(map(float, used)) if whole else None)

    def patience(self, limits: Limits, begun: bool) -> float:
        """Wait longer: a node may have to import torch first."""
        return max(limits.silence, limits.first_sign + READY_WAIT)

    def hindered(self) -> Sequence[str]:
        """Tell whether the job is suspended, as the last look has found it."""
        assert self.allocation
        return ("suspended", self.allocation.job) if self.suspended else ()

    def end(self, stopped: bool) -> None:
        """End what is left of the run on the nodes: a killed srun leaves its ranks.

        If it is stopped, or SLURM has ended it, the nodes could not look for what the
        ranks have left behind; and forks of a node's server are of another step.
        What is suspended hears of no end but that of the job, which may be ours.
        """
        if self.suspended:
            control.cancel_named(LEASE.name)
        keeper.end_steps(self.name, tidy=0, most=END_WAIT)
        if (stopped or self.ended_by_slurm()) and not self.suspended:
            self._on_each_node(SWEEP, self.mark_there)

    def _on_each_node(self, program: str, argument: str) -> str | None:
        words = [sys.executable, "-c", program, str(ROOT), argument]
        srun = self._srun(f"{self.name}-look")
        return control.ask(*srun, *words, wait=LOOK_WAIT)

    def lost(self, code: int) -> Sequence[str]:
        """Tell of SLURM, and of srun."""
        if why := self.ended_by_slurm():
            return "slurm", why
        return ("srun", signal_name(-code)) if code < 0 else ()

    def ended_by_slurm(self) -> str:
        """Return why SLURM has ended the job, or the step; "" if it has not."""
        said = read(self.folder / names.ERR)
        found = CANCELLED.search(said)
        if found is None or (self.folder / names.ASKED).exists():  # by step.py
            return ""
        if failed := FAILED.search(said):
            return f"{self._node(failed[1])} has failed"
        if why := (found[1] or "").strip():
            return REASONS.get(why, why.lower())
        if self.allocation and control.lives(self.allocation.job):
            return "this step was cancelled, and its job goes on"
        return "the job was cancelled"

    def _node(self, host: str) -> str:
        hosts = self.allocation.hosts if self.allocation else []
        return f"node {hosts.index(host)} ({host})" if host in hosts else host


def _address(host: str) -> str:
    """Return at which address the other nodes find this one."""
    words = ["sinfo", "--noheader", "--Node", "--nodes", host, "--format", "%o"]
    return next(iter((control.ask(*words) or "").split()), host)

"""Send runs to the machines of a SLURM cluster: the same command, from the same cell.

    DDP_LAB_SLURM   what to ask for, as salloc takes it: "--partition=gpu --time=60"
    DDP_LAB_NNODES  over how many nodes a run is spread that does not say so itself

The machines are asked for once, when a run first needs them, and given back with this
process (keeper.py). A process that works on several machines already, because SLURM has
started it there, uses these. Each run is a step of the job:

    launcher    job.py, with `Sent`
     |
    guard       guard.py
     |
    step.py     on this machine
     |
    srun  ....  agent.py  ->  torchrun  ->  proxy  ->  rank      on each node

A run's folder lies in build/runs of the repository, which all nodes have to see, and so
the Python that runs this. Each node has a fork server, and so warm starts (warm.py).
"""

import atexit
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.record.files import read, read_json
from ddp_lab.kit.record.logs import rank_folders
from ddp_lab.kit.run import plan, warm
from ddp_lab.kit.run.plan import Option
from ddp_lab.kit.run.result import RunFailed
from ddp_lab.kit.run.warm import Tell
from ddp_lab.kit.slurm import keeper

ASKED = "DDP_LAB_SLURM"
SPREAD = "DDP_LAB_NNODES"
RUNS = ROOT / "build" / "runs"
HERE = Path(__file__).parent
LOOK_WAIT = 30.0  # seconds that all nodes have to look at their ranks
END_WAIT = 15.0  # seconds that SLURM has to end a step
# One torchrun on each node with all that the job has there, beside any other step; and
# the end of one is for us to judge.
STEP = "--overlap --ntasks-per-node=1 --mpi=none --export=ALL"
STEP += " --wait=0 --kill-on-bad-exit=0 --quiet"
# Of what we may be a step ourselves, which would count as our wishes.
OURS = ("SLURM_CONF", "SLURM_JWT")
CANCELLED = re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([\w ]+))?")
REASONS = {
    "TIME LIMIT": "the job's time was up",
    "NODE FAILURE": "a node has failed",
    "PREEMPTION": "another job was given its nodes",
    "": "the job was cancelled",
}
# A fork server on each node: it ends when its stdin closes, or when SLURM asks all that
# is there to end, and leaves nothing.
SERVER = """
folder={}-$SLURMD_NODENAME
trap : TERM
mkdir "$folder" && {} "$folder/socket" > "$folder/log" 2>&1
rm -rf "$folder"
"""
LOOK = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ddp_lab.kit.run import probe
probe.look_at_node(Path(sys.argv[2]), int(os.environ["SLURM_NODEID"]))
"""
SWEEP = """
import sys
sys.path.insert(0, sys.argv[1])
from ddp_lab.kit.run import guard
guard.end_all(sys.argv[2], grace=0)
"""


@dataclass(frozen=True)
class Allocation:
    """Machines that SLURM has given."""

    job: str
    hosts: list[str]


class Cluster:
    """The machines of this process: none before they are needed."""

    def __init__(self) -> None:
        self.name = f"ddp_lab-{uuid.uuid4().hex[:12]}"
        """That of the job, and how the names of our steps in another's begin."""
        self.held: Allocation | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._warm: subprocess.Popen[bytes] | None = None
        self._settings: dict[str, str] = {}
        self._warm_name = ""
        self._lock = threading.RLock()  # several threads may launch at once

    def allocation(self, nodes: int, tell: Tell) -> Allocation:
        """Return at least so many machines; wait for them if need be.

        Args:
            nodes: how many.
            tell: called with what SLURM says meanwhile, say about the queue.

        Raises:
            RunFailed: says why there are none.
        """
        with self._lock:
            if self.held is None or not self._lives() or len(self.held.hosts) < nodes:
                self.close()
                self.held = self._join(nodes) or self._ask(nodes, tell)
            if len(self.held.hosts) < nodes:
                have = f"job {self.held.job} of SLURM has {_count(self.held.hosts)}"
                raise RunFailed(
                    f"the launcher: {have}, and the run needs {nodes}", None
                )
            return self.held

    def _lives(self) -> bool:
        """Tell whether our job still runs, and somebody would end it with us."""
        if self.held is None or self._keeper is None or self._keeper.poll() is not None:
            return False
        running = ["squeue", "--noheader", "--states", "RUNNING", "--format", "%i"]
        return bool(_slurm(*running, "--jobs", self.held.job).strip())

    def _join(self, nodes: int) -> Allocation | None:
        """Return the allocation in which we run already, if it has enough nodes."""
        if _nodes_around() < max(nodes, 1):
            return None
        job, short = os.environ["SLURM_JOB_ID"], os.environ["SLURM_JOB_NODELIST"]
        self._keeper = _keeper(self.name)
        return Allocation(job, _hosts(short))

    def _ask(self, nodes: int, tell: Tell) -> Allocation:
        """Return an allocation of our own."""
        nodes = max(nodes, _spread())
        wishes = os.environ.get(ASKED, "")
        if not shutil.which("salloc"):
            what = f'{ASKED}="{wishes}" asks for machines of SLURM'
            raise RunFailed(f"the launcher: {what}, and there is no salloc here", None)
        words = ["--nodes", str(nodes), *shlex.split(wishes)]
        self._keeper = _keeper(self.name, "salloc", *words)
        said = []
        try:
            for line in _lines(self._keeper):
                if line.startswith("ddp_lab "):
                    _, job, short = line.split()
                    return Allocation(job, _hosts(short))
                said += [line.removeprefix("salloc: ").removeprefix("error: ")]
                tell(f"SLURM: {said[-1]}")
        except BaseException:
            self.close()
            raise
        self.close()
        for_what = f'{ASKED}="{wishes}", {nodes} node{"s" * (nodes > 1)}'
        why = "; ".join(filter(None, said))
        raise RunFailed(f"SLURM gives no machines ({for_what}): {why}", None)

    def lend(self) -> None:
        """Let the processes that we start share machines, if there are to be any."""
        if not os.environ.get(ASKED):
            return
        try:
            held = self.allocation(1, lambda said: print(said, flush=True))
        except RunFailed as failed:  # in a terminal, where a traceback says no more
            sys.exit(str(failed))
        os.environ["SLURM_JOB_ID"] = held.job
        os.environ["SLURM_JOB_NODELIST"] = ",".join(held.hosts)
        os.environ["SLURM_JOB_NUM_NODES"] = str(len(held.hosts))

    def warm(self, env: dict[str, str]) -> str:
        """Return where each node has, or will have, a fork server; see warm.py.

        The node's name is to be added. "" if there are none.
        """
        if not warm.wanted() or self.held is None:
            return ""
        with self._lock:
            settings = warm.settings_in(env)
            if self._warm and self._warm.poll() is None and settings == self._settings:
                return f"/tmp/{self._warm_name}-"
            self._cool()
            self._settings = settings
            self._warm_name = f"{self.name}-warm-{uuid.uuid4().hex[:8]}"
            words = [sys.executable, str(warm.FORK_SERVER)]
            server = SERVER.format(f"/tmp/{self._warm_name}", shlex.join(words))
            step = srun(self.held, len(self.held.hosts), self._warm_name)
            self._warm = subprocess.Popen(
                [*step, "sh", "-c", server],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=clean(env),
                start_new_session=True,
            )
            return f"/tmp/{self._warm_name}-"

    def _cool(self) -> None:
        """End the fork servers: their stdin closes."""
        if self._warm and self._warm.stdin:
            self._warm.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._warm.wait(END_WAIT)
        self._warm = None

    def close(self) -> None:
        """Give the machines back."""
        self._cool()
        if self._keeper:
            with suppress(subprocess.TimeoutExpired):  # SLURM is slow to answer
                self._keeper.communicate(timeout=END_WAIT)
            if self._keeper.returncode:  # killed, say: then it has not done its work
                words = ["--user", str(os.getuid()), "--name", self.name]
                _slurm("scancel", "--quiet", *words)
        self._keeper = self.held = None


CLUSTER = Cluster()
atexit.register(CLUSTER.close)


def takes(options: Sequence[Option]) -> bool:
    """Tell whether a command of torchrun with these options is one for SLURM."""
    if plan.names_a_place(options):
        return False
    asked = bool(os.environ.get(ASKED))
    return asked or 1 < plan.nodes(options)[1] <= _nodes_around()


def spread(options: Sequence[Option]) -> list[list[Option]]:
    """Return the options of each node; see `DDP_LAB_NNODES`."""
    each = plan.value(options, "--nproc-per-node") or "1"
    rest = plan.without(options, "--nnodes", "--nproc-per-node", "--standalone")
    asked = plan.value(options, "--nnodes")
    spread = 1 if ["--standalone"] in options else _spread()
    if asked or not each.isdecimal():
        asked = asked or str(spread)
        counts = [each] * plan.nodes([["--nnodes", asked]])[1]
    else:
        ranks = int(each)
        nodes = max(1, min(ranks, spread))
        asked = str(nodes)
        counts = [str(ranks // nodes + (n < ranks % nodes)) for n in range(nodes)]
    return [[["--nnodes", asked], ["--nproc-per-node", n], *rest] for n in counts]


def _spread() -> int:
    """Return over how many nodes a run is spread that does not say so itself."""
    said = os.environ.get(SPREAD) or "1"
    if not said.isdecimal() or not int(said):
        raise RunFailed(f"NNODES takes a number of machines, not {said!r}", None)
    return int(said)


class Sent:
    """One run on the machines of SLURM.

    Args:
        options: those of torchrun.
        program: the program and its arguments.
    """

    def __init__(self, options: Sequence[Option], program: Sequence[str]):
        self.by_node = spread(options)
        self.program = list(program)
        self.allocation: Allocation | None = None
        self.name = self.mark = ""

    def folder(self, mark: str) -> Path:
        """Return where all nodes are to see the files of the run `mark`."""
        self.name = f"{CLUSTER.name}-{mark}"
        # Another one than here: what is there is no guard's of this machine, even where
        # a test's nodes are this machine.
        self.mark = mark[::-1]
        return RUNS / mark

    def allocate(self, tell: Tell) -> None:
        """Wait for the machines."""
        self.allocation = CLUSTER.allocation(len(self.by_node), tell)

    def command(self, folder: Path, server: str) -> list[str]:
        """Return what the guard shall start.

        Args:
            folder: the run's.
            server: where each node has a fork server, if it has.
        """
        assert self.allocation
        run = str(folder)
        address = _address(self.allocation.hosts[0])
        first = self.by_node[0]
        at = [plan.at(node, each, address) for node, each in enumerate(self.by_node)]
        words = [[*sum(options, []), *self.program] for options in at]
        content = {
            "srun": [*self._srun(), sys.executable, "-IS", str(HERE / "agent.py"), run],
            "mark": self.mark,
            "server": server,
            "words": words,
            "meets": [plan.meets(options, self.program) for options in at],
            "least": plan.nodes(first)[0],
            "fixed": plan.is_fixed(first),
        }
        (folder / "plan.json").write_text(json.dumps(content))
        played = {"how": self._how(), "typed": [], "left_out": []}
        (folder / "played.json").write_text(json.dumps(played))
        return [sys.executable, "-IS", str(HERE / "step.py"), run]

    def _srun(self, name: str = "") -> list[str]:
        assert self.allocation
        return srun(self.allocation, len(self.by_node), name or self.name)

    def _how(self) -> str:
        """Say where the ranks are."""
        assert self.allocation
        counts = [plan.value(options, "--nproc-per-node") for options in self.by_node]
        places = [
            f"{count} rank{'s' * (count != '1')} on {host}"
            for count, host in zip(counts, self.allocation.hosts, strict=False)
        ]
        return f"by SLURM, in job {self.allocation.job}: {', '.join(places)}"

    def look(self, folder: Path, mark: str, last: bool) -> int:
        """Let each node look at its ranks; return how many calls they have completed.

        See `probe.look_at_ranks`.
        """
        self._on_each_node(LOOK, str(folder))
        flights = [read_json(rank / "flight.json") for rank in rank_folders(folder)]
        return sum(c["done"] for f in flights if f for c in f.get("calls", []))

    def end(self, stopped: bool) -> None:
        """End what is left of the run on the nodes: a killed srun leaves its ranks.

        Args:
            stopped: whether it has not ended by itself. Then the agents could not look
                for what the ranks have left behind.
        """
        if self.allocation is None:
            return
        deadline = time.monotonic() + END_WAIT
        while left := keeper.steps(self.name):
            keeper.cancel(*left)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if stopped:
            self._on_each_node(SWEEP, self.mark)

    def _on_each_node(self, program: str, argument: str) -> None:
        words = [sys.executable, "-c", program, str(ROOT), argument]
        with suppress(subprocess.TimeoutExpired):  # then it has to do without
            _slurm(*self._srun(f"{self.name}-look"), *words, wait=LOOK_WAIT)

    def ended_by_slurm(self, folder: Path) -> str:
        """Return why SLURM has ended the job, or the step; "" if it has not."""
        found = CANCELLED.search(read(folder / "err"))
        if found is None or (folder / "asked").exists():  # by step.py
            return ""
        why = (found[1] or "").strip()
        return REASONS.get(why, why.lower())


def srun(allocation: Allocation, nodes: int, name: str) -> list[str]:
    """Return how to run something once on each of the first nodes."""
    where = ["--jobid", allocation.job, "--nodes", str(nodes), "--ntasks", str(nodes)]
    where += ["--nodelist", ",".join(allocation.hosts[:nodes])]
    return ["srun", *where, *STEP.split(), "--job-name", name]


def _keeper(*words: str) -> "subprocess.Popen[bytes]":
    """Start keeper.py."""
    return subprocess.Popen(
        [sys.executable, "-IS", str(HERE / "keeper.py"), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # or who reads ours would wait for its end
        env=clean(os.environ),
        start_new_session=True,  # the stop button is for the caller alone
    )


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    """Yield the lines that a process prints, until it closes its output."""
    assert process.stdout
    rest, number = b"", process.stdout.fileno()
    while select.select([number], [], []):
        data = os.read(number, 4096)
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
        if not data:
            return


def clean(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what SLURM would take for wishes."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("SLURM_") or name in OURS
    }


def _slurm(*words: str, wait: float | None = None) -> str:
    """Run a command of SLURM; return what it prints."""
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=clean(os.environ),
        timeout=wait,
    )
    return done.stdout


def _nodes_around() -> int:
    """Return how many nodes the job has in which we run; 0 if we run in none."""
    number = os.environ.get("SLURM_JOB_NUM_NODES", "")
    inside = "SLURM_JOB_ID" in os.environ and "SLURM_JOB_NODELIST" in os.environ
    return int(number) if inside and number.isdecimal() else 0


def _hosts(short: str) -> list[str]:
    """Return the names of the nodes in a list as SLURM writes it: node[1-2]."""
    return _slurm("scontrol", "show", "hostnames", short).split()


def _address(host: str) -> str:
    """Return at which address the other nodes find this one."""
    words = ["sinfo", "--noheader", "--Node", "--nodes", host, "--format", "%o"]
    return next(iter(_slurm(*words).split()), host)


def _count(hosts: Sequence[str]) -> str:
    return f"{len(hosts)} node{'s' * (len(hosts) != 1)}"

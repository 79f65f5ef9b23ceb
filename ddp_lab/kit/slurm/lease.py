"""Machines of SLURM that this process has for its runs.

    DDP_LAB_SLURM   what to ask for, as salloc takes it: "--partition=gpu --time=60"
    DDP_LAB_NNODES  over how many nodes a run is spread that does not say so itself
    DDP_LAB_WAIT    set: wait also where SLURM says that the wish cannot be met now

They are asked for once, when a run first needs them, and given back with this process
(keeper.py). A process that works on several machines already, because SLURM has started
it there, uses these.
"""

import atexit
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddp_lab.kit.run import warm
from ddp_lab.kit.run.result import RunFailed
from ddp_lab.kit.run.warm import Tell
from ddp_lab.kit.slurm import control

ASKED, SPREAD, WAIT = "DDP_LAB_SLURM", "DDP_LAB_NNODES", "DDP_LAB_WAIT"
HERE = Path(__file__).parent
END_WAIT = 15.0  # seconds that SLURM has to end a step
REASON_EVERY = 2.0  # seconds between two questions why we wait
# Reasons that do not pass by themselves, however long one waits.
NEVER = re.compile(
    "^Partition.*(Limit|Config)|PerJob|DOWN|DRAINED|NotAvail|BadConstraints"
)
# One torchrun on each node with all that the job has there, beside any other step; and
# the end of one is for us to judge.
STEP = "--overlap --ntasks-per-node=1 --mpi=none --export=ALL"
STEP += " --wait=0 --kill-on-bad-exit=0 --quiet"
# A fork server on each node: it ends when its stdin closes, or when SLURM asks all that
# is there to end, and leaves nothing; what one that was killed has left, the next does.
SERVER = """
folder={}-$SLURMD_NODENAME
trap : TERM
for old in /tmp/ddp_lab-*-warm-*; do flock --nonblock "$old" rm -rf "$old"; done
mkdir "$folder" &&
    flock --no-fork "$folder" {} "$folder/socket" > "$folder/log" 2>&1
rm -rf "$folder"
"""


@dataclass(frozen=True)
class Allocation:
    """Machines that SLURM has given."""

    job: str
    hosts: list[str]

    def srun(self, nodes: int, name: str) -> list[str]:
        """Return how to run something once on each of the first nodes."""
        where = ["--jobid", self.job, "--nodes", str(nodes), "--ntasks", str(nodes)]
        where += ["--nodelist", ",".join(self.hosts[:nodes])]
        return ["srun", *where, *STEP.split(), "--job-name", name]


class Lease:
    """The machines of this process: none before they are needed."""

    def __init__(self) -> None:
        self.name = ""
        """That of the job, and how the names of our steps in another's begin."""
        self.held: Allocation | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._warm: subprocess.Popen[bytes] | None = None
        self._settings: dict[str, str] = {}
        self._warm_name = ""
        self._reason = ""  # why we wait in the queue
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
                count = len(self.held.hosts)
                have = (
                    f"job {self.held.job} of SLURM has {count} node{'s' * (count != 1)}"
                )
                said = f"the launcher: {have}, and the run needs {nodes}"
                raise RunFailed(said, None)
            return self.held

    def _lives(self) -> bool:
        """Tell whether our job still runs, and somebody would end it with us."""
        if self.held is None or self._keeper is None or self._keeper.poll() is not None:
            return False
        return control.lives(self.held.job)

    def _keep(self, *words: str) -> None:
        """Start keeper.py, for a name that nobody has had before."""
        self.name = f"ddp_lab-{uuid.uuid4().hex[:12]}"
        self._keeper = subprocess.Popen(
            [sys.executable, "-IS", str(HERE / "keeper.py"), self.name, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # or who reads ours would wait for its end
            env=control.clean(os.environ),
            start_new_session=True,  # the stop button is for the caller alone
        )

    def _join(self, nodes: int) -> Allocation | None:
        """Return the allocation in which we run already, if it has enough nodes.

        One that `make lab` has lent us may be over: then we ask for our own.
        """
        if nodes_around() < max(nodes, 1):
            return None
        job, short = os.environ["SLURM_JOB_ID"], os.environ["SLURM_JOB_NODELIST"]
        if not control.lives(job):
            if os.environ.get(ASKED):
                return None
            said = f"job {job} of SLURM, in which this process runs, has ended"
            raise RunFailed(f"the launcher: {said}", None)
        self._keep()
        return Allocation(job, _hosts(short))

    def _ask(self, nodes: int, tell: Tell) -> Allocation:
        """Return an allocation of our own."""
        nodes = max(nodes, spread())
        wishes = os.environ.get(ASKED, "")
        if not shutil.which("salloc"):
            what = f'{ASKED}="{wishes}" asks for machines of SLURM'
            raise RunFailed(f"the launcher: {what}, and there is no salloc here", None)
        self._keep("salloc", "--nodes", str(nodes), *shlex.split(wishes))
        said = []
        try:
            for line in self._lines():
                if line.startswith("ddp_lab "):
                    _, job, short = line.split()
                    return Allocation(job, _hosts(short))
                said += [line.removeprefix("salloc: ").removeprefix("error: ")]
                tell(f"SLURM: {said[-1]}")
                if NEVER.search(self._reason) and not os.environ.get(WAIT):
                    said += [f"that may never change; {WAIT}=1 waits even so"]
                    break
        except BaseException:
            self.close()
            raise
        self.close()
        for_what = f'{ASKED}="{wishes}", {nodes} node{"s" * (nodes > 1)}'
        why = "; ".join(filter(None, said))
        raise RunFailed(f"SLURM gives no machines ({for_what}): {why}", None)

    def _lines(self) -> Iterator[str]:
        """Yield what salloc says, until it ends; and why we wait, when that changes."""
        assert self._keeper and self._keeper.stdout
        rest, number, self._reason = b"", self._keeper.stdout.fileno(), ""
        while True:
            if not select.select([number], [], [], REASON_EVERY)[0]:
                if (reason := control.reason(self.name)) != self._reason:
                    self._reason = reason
                    yield reason
                continue
            data = os.read(number, 4096)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not data:
                return

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
            step = self.held.srun(len(self.held.hosts), self._warm_name)
            self._warm = subprocess.Popen(
                [*step, "sh", "-c", server],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=control.clean(env),
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
                control.cancel_named(self.name)
        self._keeper = self.held = None


LEASE = Lease()
atexit.register(LEASE.close)


def spread() -> int:
    """Return over how many nodes a run is spread that does not say so itself."""
    said = os.environ.get(SPREAD) or "1"
    if not said.isdecimal() or not int(said):
        raise RunFailed(f"NNODES takes a number of machines, not {said!r}", None)
    return int(said)


def nodes_around() -> int:
    """Return how many nodes the job has in which we run; 0 if we run in none."""
    number = os.environ.get("SLURM_JOB_NUM_NODES", "")
    inside = "SLURM_JOB_ID" in os.environ and "SLURM_JOB_NODELIST" in os.environ
    return int(number) if inside and number.isdecimal() else 0


def _hosts(short: str) -> list[str]:
    """Return the names of the nodes in a list as SLURM writes it: node[1-2]."""
    return (control.ask("scontrol", "show", "hostnames", short) or short).split()

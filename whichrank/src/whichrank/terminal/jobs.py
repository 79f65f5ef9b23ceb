"""The jobs on this machine: which process is which rank, and of which job.

Each launcher is a function that says whether a process is one of its ranks, and which:
torchrun and SLURM tell a rank its number by the environment, which the system shows to
the same user; a child of mp.spawn has its number on its stack. Any other process of
Python is looked at alone, if it is named.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from whichrank.record import names
from whichrank.record.files import shorten
from whichrank.record.stacks import OURS, Frame
from whichrank.record.words import duration
from whichrank.run.channels import ERROR_FILE, NO_JOB
from whichrank.terminal.looks import look

RUN_ID = "TORCHELASTIC_RUN_ID"
SPAWN = str(Path("torch", "multiprocessing", "spawn.py"))
FORK_SERVER = "/whichrank/run/fork_server.py"  # its forks have proxies, the ranks


@dataclass(frozen=True)
class Process:
    """What the system tells of a process."""

    pid: int
    parent: int
    words: list[str]
    environment: dict[str, str]
    started: float
    folder: str
    python: bool

    def numbers(self, *variables: str) -> list[int]:
        """Return the numbers in these variables; none if one is missing."""
        values = [self.environment.get(name, "") for name in variables]
        return [int(v) for v in values] if all(map(str.isdecimal, values)) else []

    @property
    def program(self) -> str:
        """The command from the program on: `train.py --lr 0.1`."""
        begins = [
            number
            for number, word in enumerate(self.words)
            if word in ("-m", "-c") or word.endswith(".py") and not OURS.search(word)
        ]
        return shorten(" ".join(self.words[begins[0] if begins else 1 :]), 70)


@dataclass(frozen=True)
class Membership:
    """What a process is among the ranks of its job."""

    rank: int
    size: int
    """The number of ranks of the whole job."""
    family: tuple
    """What the ranks of one job have in common, and two jobs have not."""
    here: range
    """The ranks that its launcher has started on this machine."""


@dataclass(frozen=True)
class Job:
    """Processes that make one world, as far as they are on this machine."""

    launcher: str
    program: str
    size: int
    """The number of ranks of the whole job."""
    ranks: dict[int, Process]
    members: frozenset[int]
    """The processes of its ranks, and those that they have started."""
    above: frozenset[int]
    """Launchers, their parents, and so on."""
    gone: frozenset[int] = frozenset()
    """Ranks that should be on this machine, and are not."""

    def __str__(self) -> str:
        first = min(self.ranks.values(), key=lambda process: process.started)
        since = duration(time.time() - first.started)
        here = len(self.ranks)
        numbers = self.size if here == self.size else f"{here} of {self.size}"
        many = "s" * (self.size > 1)
        text = f"{self.program or '?'} ({self.launcher}, {numbers} rank{many}"
        return f"{text}, for {since}, in {first.folder})"


class Machine:
    """All processes of this machine, as they are now."""

    def __init__(self) -> None:
        self.hidden = 0
        """How many processes of Python do not show us their environment."""
        self.processes: dict[int, Process] = {}
        facts = ["ppid", "cmdline", "environ", "create_time", "cwd", "exe"]
        for each in psutil.process_iter(facts):
            parent, words, environment, started, cwd, exe = map(each.info.get, facts)
            python = "python" in os.path.basename(exe or (words or [""])[0])
            self.hidden += python and environment is None
            rest = words or [], environment or {}, started, cwd or "?", python
            self.processes[each.pid] = Process(each.pid, parent, *rest)

    def above(self, pid: int) -> list[int]:
        """Return the parent of `pid`, its parent, and so on."""
        pids = [pid]
        while (parent := self.processes[pids[-1]].parent) in self.processes:
            if parent in pids:  # on macOS the first process is its own parent
                break
            pids.append(parent)
        return pids[1:]

    def below(self, pid: int) -> list[int]:
        """Return the children of `pid`, their children, and so on."""
        pids = [pid]
        for parent in pids:
            pids += [p.pid for p in self.processes.values() if p.parent == parent]
        return pids[1:]

    def inherits(self, process: Process, *variables: str) -> bool:
        """Tell whether a Python above a process has the same in these variables."""
        above = [self.processes[p] for p in self.above(process.pid)]
        mine = [process.environment.get(name) for name in variables]
        theirs = [[p.environment.get(n) for n in variables] for p in above if p.python]
        return mine in theirs

    def jobs(self) -> list[Job]:
        """Return all jobs that can be seen, the newest first."""
        free, jobs = self._may_be_ranks(), list[Job]()
        for name, membership in LAUNCHERS.items():
            families: dict[tuple, dict[int, Membership]] = {}
            for process in free:
                if member := membership(process, self):
                    families.setdefault(member.family, {})[process.pid] = member
            jobs += [self._job(name, family) for family in families.values()]
            taken = {pid for job in jobs for pid in (*job.members, *job.above)}
            free = [process for process in free if process.pid not in taken]
        return sorted(jobs, key=lambda job: -max(p.started for p in job.ranks.values()))

    def _may_be_ranks(self) -> list[Process]:
        """Return the Pythons, the oldest first, without us and what is no job."""
        marked = [pid for pid, p in self.processes.items() if NO_JOB in p.words[:3]]
        out = {os.getpid(), *self.above(os.getpid()), *marked}
        out |= {pid for each in marked for pid in self.below(each)}
        out |= {pid for pid, p in self.processes.items() if FORK_SERVER in str(p.words)}
        pythons = [p for p in self.processes.values() if p.python and p.pid not in out]
        return sorted(pythons, key=lambda process: (process.started, process.pid))

    def _job(self, launcher: str, members: dict[int, Membership]) -> Job:
        """Return the job of these processes; of one rank's, the newest counts."""
        started = {each.rank: pid for pid, each in members.items()}
        ranks = {rank: self._inner(started[rank]) for rank in sorted(started)}
        first = self.processes[started[min(started)]]
        parent = self.processes.get(first.parent, first)
        pids = {*members, *(process.pid for process in ranks.values())}
        return Job(
            launcher,
            (parent if launcher == "mp.spawn" else first).program,
            max(each.size for each in members.values()),
            ranks,
            members=frozenset(pids | {p for pid in pids for p in self.below(pid)}),
            above=frozenset(p for pid in pids for p in self.above(pid)) - pids,
            gone=frozenset(r for each in members.values() for r in each.here)
            - {*ranks},
        )

    def _inner(self, pid: int) -> Process:
        """Return the process that a rank runs in; ours is not the one started."""
        process = self.processes[pid]
        log = process.environment.get(ERROR_FILE, os.devnull)
        try:
            return self.processes[int(Path(log).with_name(names.PID).read_text())]
        except (OSError, ValueError, KeyError):
            return process

    def alone(self, pid: int) -> Job | None:
        """Return a job of one process that is no rank; None if it is no Python."""
        process = self.processes.get(pid)
        if process is None or not process.python:
            return None
        return self._job("python", {pid: Membership(0, 1, (), range(1))})


# --- launchers: each says which of its ranks a process is, if it is one ---


def torchrun(process: Process, machine: Machine) -> Membership | None:
    """A rank of torchrun, unless it has only inherited the numbers of one."""
    numbers = process.numbers("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    if not numbers or machine.inherits(process, "RANK", RUN_ID):
        return None
    parent = machine.processes.get(process.parent)
    if not (parent and parent.python) and not has_torch(process.pid):
        return None  # a rank has started it, and left
    rank, size, many, node = numbers
    meeting = (RUN_ID, "MASTER_ADDR", "MASTER_PORT")
    family = tuple(process.environment.get(name) for name in meeting)
    return Membership(rank, size, family, range(node * many, node * many + many))


def spawn(process: Process, machine: Machine) -> Membership | None:
    """A child of mp.spawn: its stack tells its number, the parent's how many there are.

    With `join=False` the parent is elsewhere.
    """
    if "multiprocessing" not in str(process.words) or not has_torch(process.pid):
        return None
    wraps = [f for f in look(process.pid).log.stack if f.file.endswith(SPAWN)]
    rank = number(wraps, "i")
    if rank is None:
        return None
    size = number(look(process.parent).log.stack, "nprocs") or rank + 1
    return Membership(rank, size, (process.parent,), range(size))


def slurm(process: Process, machine: Machine) -> Membership | None:
    """A task of a SLURM step; what else is in a job inherits its variables."""
    numbers = process.numbers("SLURM_PROCID", "SLURM_NTASKS")
    if not numbers or machine.inherits(process, "SLURM_PROCID", "SLURM_STEP_ID"):
        return None
    if not has_torch(process.pid):
        return None
    rank, size = numbers
    get = process.environment.get
    alone = get("SLURM_STEP_NUM_NODES", get("SLURM_NNODES", "1")) == "1"
    here = range(size) if alone else range(rank, rank + 1)
    return Membership(rank, size, (get("SLURM_JOB_ID"), get("SLURM_STEP_ID")), here)


LAUNCHERS: dict[str, Callable[[Process, Machine], Membership | None]] = {
    "torchrun": torchrun,
    "mp.spawn": spawn,
    "SLURM": slurm,
}


def number(stack: list[Frame], name: str) -> int | None:
    """Return the number that a local variable has on a stack."""
    values = (frame.values.get(name, "") for frame in stack)
    return next((int(value) for value in values if value.isdecimal()), None)


def has_torch(pid: int) -> bool:
    """Tell whether a process has loaded PyTorch."""
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False

"""The jobs on this machine: which process is which rank, and of which job.

A launcher tells a rank its number by the environment with which it starts it, and the
system shows that to the same user: `LAUNCHERS` has the names. A child of mp.spawn has
its number on its stack alone. Any other Python is looked at alone, if it is named.
"""

import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from whichrank.record import names
from whichrank.record.files import shorten
from whichrank.record.stacks import OURS, Frame
from whichrank.record.words import duration
from whichrank.run.channels import ERROR_FILE, NO_JOB
from whichrank.terminal.looks import look

ALONE = "python"  # of a process that is no rank, as far as is seen
LOOPBACK = re.compile(r"localhost$|127\.|::1$")
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

    def number(self, variable: str) -> int | None:
        """Return the number in a variable; None if there is none."""
        value = self.environment.get(variable, "")
        return int(value) if value.isdecimal() else None

    @property
    def command(self) -> list[str]:
        """The words from the program on: `train.py`, `--lr`, `0.1`."""
        begins = [
            number
            for number, word in enumerate(self.words)
            if word in ("-m", "-c") or word.endswith(".py") and not OURS.search(word)
        ]
        return self.words[begins[0] if begins else 1 :]

    @property
    def program(self) -> str:
        """The command as one short line."""
        return shorten(" ".join(self.command), 70)

    @property
    def main(self) -> list[str]:
        """What Python was told to run, without folders: `train.py`, or `-m`, `pack`."""
        words = [w for w in self.words[1:] if w in ("-m", "-c") or w[:1] != "-"]
        names = [os.path.basename(word) for word in words if not OURS.search(word)]
        return names[: 2 if names[:1] in (["-m"], ["-c"]) else 1]


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
    sure: bool = True
    """Whether it has loaded PyTorch, or was started by what starts nothing but ranks;
    else it may be some other process that a rank has left behind."""


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
        since = f"for {duration(time.time() - first.started)}"
        facts = [self.launcher, self._many(), since, f"in {first.folder}"]
        return f"{self.program or '?'} ({', '.join(filter(None, facts))})"

    def _many(self) -> str:
        if self.launcher == ALONE:
            return "1 process, here called rank 0"
        here = len(self.ranks)
        numbers = self.size if here == self.size else f"{here} of {self.size}"
        return f"{numbers} rank{'s' * (self.size > 1)}"


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
        for launcher in LAUNCHERS:
            families: dict[tuple, dict[int, Membership]] = {}
            for process in free:
                if member := launcher.membership(process, self):
                    families.setdefault(member.family, {})[process.pid] = member
            for ranks in filter(None, map(self._ranks, families.values())):
                jobs.append(self._job(launcher.name, self._with_parent(ranks)))
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

    def _ranks(self, members: dict[int, Membership]) -> dict[int, Membership]:
        """Return those that are ranks for sure, or run the program of one that is.

        One that still imports PyTorch is there already.
        """
        sure = [self.processes[pid].main for pid, each in members.items() if each.sure]
        return {p: m for p, m in members.items() if self.processes[p].main in sure}

    def _with_parent(self, members: dict[int, Membership]) -> dict[int, Membership]:
        """Return ranks with the one that has started the others, if it is the first.

        So it is under Lightning. No variable shows it, but that it runs their program
        and has loaded PyTorch, and that none that it has started is the first one.
        """
        last = max(members, key=lambda pid: members[pid].rank)
        parent = self.processes.get(self.processes[last].parent)
        if parent is None or not parent.python or not has_torch(parent.pid):
            return members
        same = [m for p, m in members.items() if self.processes[p].main == parent.main]
        first = members[last].here.start
        if not same or first in [each.rank for each in same]:
            return members
        return members | {parent.pid: replace(members[last], rank=first)}

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
        return self._job(ALONE, {pid: Membership(0, 1, (), range(1))})


# --- launchers: each says which of its ranks a process is, if it is one ---


class Spawn:
    """mp.spawn: a rank's stack tells its number, the parent's how many there are.

    With `join=False` the parent is elsewhere.
    """

    name = "mp.spawn"

    def membership(self, process: Process, machine: Machine) -> Membership | None:
        """Return which rank a process is."""
        if "multiprocessing" not in str(process.words) or not has_torch(process.pid):
            return None
        wraps = [f for f in look(process.pid).log.stack if f.file.endswith(SPAWN)]
        rank = number(wraps, "i")
        if rank is None:
            return None
        size = number(look(process.parent).log.stack, "nprocs") or rank + 1
        return Membership(rank, size, (process.parent,), range(size))


@dataclass(frozen=True)
class Variables:
    """By which variables of its environment a process is known as a rank."""

    name: str
    """Of the launcher; nothing if it may be any."""
    rank: str
    size: str
    job: tuple[str, ...]
    """What the ranks of one job have in common, and two jobs have not."""
    many: str = ""
    """How many ranks there are on this machine."""
    local: str = ""
    """Which of them it is, from 0, where their numbers follow each other."""
    only: str = ""
    """Without which it is another launcher."""
    node: str = ""
    """Which machine this is, where `rank` is counted anew on each."""

    def membership(self, process: Process, machine: Machine) -> Membership | None:
        """Return which rank a process is, unless it has only inherited the numbers."""
        rank, size = process.number(self.rank), process.number(self.size)
        if rank is None or size is None or rank >= size:
            return None
        if self.only not in {"", *process.environment}:
            return None
        if self.node and process.number(self.node) != 0:
            return None  # how many ranks the other machines have is not known
        if machine.inherits(process, self.rank, *self.job):
            return None
        agent = machine.processes.get(process.parent) if self.only else None
        sure = bool(agent and agent.python) or has_torch(process.pid)
        family = tuple(filter(None, map(process.environment.get, self.job)))
        here = self._here(process, rank, size)
        return Membership(rank, size, family or (process.parent,), here, sure)

    def _here(self, process: Process, rank: int, size: int) -> range:
        """Return the ranks that are on this machine, as far as the variables tell."""
        many, local = process.number(self.many), process.number(self.local)
        met = process.environment.get(ADDRESS, "") if ADDRESS in self.job else ""
        if many == size or LOOPBACK.match(met):
            return range(size)
        first = rank - (local or 0)
        end = rank + 1 if many is None or local is None else first + many
        return range(first, end)


NUMBERS, LOCAL, ADDRESS = ("RANK", "WORLD_SIZE"), "LOCAL_RANK", "MASTER_ADDR"
MEETING, TORCHRUN = (ADDRESS, "MASTER_PORT"), "TORCHELASTIC_RUN_ID"
STEP, OPEN_MPI = ("SLURM_JOB_ID", "SLURM_STEP_ID"), "OMPI_COMM_WORLD_"
# The first one that knows a process has it: some start others, and pass on variables.
LAUNCHERS: tuple[Spawn | Variables, ...] = (
    Variables(
        "torchrun",
        *NUMBERS,
        (TORCHRUN, *MEETING),
        many="LOCAL_WORLD_SIZE",
        local=LOCAL,
        only=TORCHRUN,
    ),
    Spawn(),
    # `RANK=0 python train.py &`; DeepSpeed, which has LOCAL_SIZE
    Variables("", *NUMBERS, MEETING, many="LOCAL_SIZE", local=LOCAL),
    # Lightning
    Variables("", LOCAL, "WORLD_SIZE", MEETING, local=LOCAL, node="NODE_RANK"),
    Variables(
        "MPI",
        f"{OPEN_MPI}RANK",
        f"{OPEN_MPI}SIZE",
        ("PMIX_NAMESPACE",),
        many=f"{OPEN_MPI}LOCAL_SIZE",
    ),
    Variables("MPI", "PMI_RANK", "PMI_SIZE", (), many="MPI_LOCALNRANKS"),  # MPICH
    # "3" says that all are on one machine; on several it is "3(x2)", or "2,1".
    Variables(
        "SLURM",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        STEP,
        many="SLURM_STEP_TASKS_PER_NODE",
    ),
)


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

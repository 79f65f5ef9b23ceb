"""The jobs on this machine: which process is which rank, and of which job.

Three launchers are known. torchrun tells a rank its number by the environment, which
the system shows to the same user, and so does SLURM to each task of a step; a child of
mp.spawn has its number as an argument, which its stack shows. What else holds PyTorch
is listed, and looked at alone.
"""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from ddp_lab.kit.record.files import shorten
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.say import duration
from ddp_lab.kit.terminal.look import look

RUN_ID = "TORCHELASTIC_RUN_ID"
STARTERS = ("/ddp_lab/kit/run/proxy.py", "/ddp_lab/kit/run/rank.py")
FORK_SERVER = "/ddp_lab/kit/run/fork_server.py"  # holds torch for those that ask
NO_JOB = "--no-job"  # in its command a process says so of itself, and of all below it
# Processes in which libraries do a part of a rank's work, by a function of theirs.
WORKERS = ("_worker_loop", "_process_worker", "worker", "main_loop", "_pin_memory_loop")


Number = tuple[int, int]
"""A rank, and of how many."""


@dataclass(frozen=True, eq=False)
class Process:
    """What the system tells of a process."""

    pid: int
    parent: int
    words: list[str]
    environment: dict[str, str]
    started: float
    status: str
    python: bool

    def numbers(self, one: str, other: str) -> Number | None:
        """Return the numbers in two variables, if both are there."""
        told = self.environment.get(one, ""), self.environment.get(other, "")
        return (int(told[0]), int(told[1])) if all(map(str.isdecimal, told)) else None

    @property
    def program(self) -> str:
        """The command without the interpreter: `train.py --lr 0.1`."""
        words = self.words[1:] if self.python else self.words
        ours = [i for i, word in enumerate(words) if word.endswith(STARTERS)]
        if ours:  # what the lab has started, this one or another
            words = words[ours[0] + (2 if words[ours[0]].endswith("proxy.py") else 1) :]
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words = words[1:]
        return shorten(" ".join(words), 70)


@dataclass
class Job:
    """Processes that make one world, as far as they are on this machine."""

    launcher: str
    program: str
    size: int
    """The number of ranks of the whole job."""
    ranks: dict[int, Process]
    workers: dict[int, list[int]] = field(default_factory=dict)
    """Further processes of a rank: those of its DataLoader, for example."""
    above: set[int] = field(default_factory=set)
    """Launchers, their parents, and so on."""
    away: list[int] = field(default_factory=list)
    """Ranks that run on another machine, as far as is known."""
    gone: list[int] = field(default_factory=list)
    """Ranks that should be on this machine, and are not."""
    zombies: list[int] = field(default_factory=list)
    """Processes that have ended, and whose parent has not noticed."""

    @property
    def members(self) -> set[int]:
        """The processes of its ranks, and theirs."""
        members = [process.pid for process in self.ranks.values()]
        return {*members, *sum(self.workers.values(), [])}

    def __str__(self) -> str:
        first = min(self.ranks.values(), key=lambda process: process.started)
        since = duration(time.time() - first.started)
        here = len(self.ranks)
        numbers = self.size if here == self.size else f"{here} of {self.size}"
        many = "s" * (self.size > 1)
        text = f"{self.program or '?'} ({self.launcher}, {numbers} rank{many}"
        return f"{text}, for {since}, in {folder(first.pid)})"


class Machine:
    """All processes of this machine, as they are now."""

    def __init__(self) -> None:
        self.hidden: dict[str, int] = {}
        """By user, the number of Python processes whose environment may not be read."""
        self.processes = {}
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    found = self._read(process)
            except (psutil.Error, OSError):
                continue  # ended meanwhile
            self.processes[found.pid] = found
        self.children: dict[int, list[int]] = {}
        for process in self.processes.values():
            self.children.setdefault(process.parent, []).append(process.pid)

    def _read(self, process: psutil.Process) -> Process:
        words: list[str] = []
        environment, python = dict[str, str](), False
        try:
            words = process.cmdline()
            environment = process.environ()
            python = "python" in os.path.basename(process.exe())
        except psutil.ZombieProcess:
            pass  # has neither any more
        except psutil.AccessDenied:
            if words and "python" in os.path.basename(words[0]):
                user = process.username()
                self.hidden[user] = self.hidden.get(user, 0) + 1
        started, status = process.create_time(), process.status()
        about = words, environment, started, status, python
        return Process(process.pid, process.ppid(), *about)

    def above(self, pid: int) -> list[int]:
        """Return the parent of `pid`, its parent, and so on, without the first."""
        found: list[int] = []
        while (process := self.processes.get(pid)) and process.parent > 1:
            pid = process.parent
            found.append(pid)
        return found

    def below(self, pid: int) -> list[int]:
        """Return the children of `pid`, their children, and so on."""
        found = list(self.children.get(pid, []))
        for child in found:
            found += self.children.get(child, [])
        return found

    def forked(self, process: Process) -> bool:
        """Tell whether a Python is a fork of its parent, or multiprocessing's."""
        parent = self.processes.get(process.parent)
        if parent is None or not (parent.python and process.python):
            return False
        same = process.words == parent.words
        return same or any("multiprocessing" in word for word in process.words)

    def jobs(self) -> list[Job]:
        """Return all jobs that can be seen, the newest first."""
        taken, found = self._no_jobs(), list[Job]()
        for launcher in (Torchrun(self), Spawn(self), SlurmTask(self)):
            groups: dict[tuple, dict[Process, Number]] = {}
            for pid, process in sorted(self.processes.items()):
                free = process.python and pid not in taken
                if free and (number := launcher.number(process)):
                    group = groups.setdefault(launcher.family(process), {})
                    group[process] = number
            for group in groups.values():
                found += [self._job(launcher, ranks) for ranks in _once(group)]
            taken |= {pid for job in found for pid in (*job.members, *job.above)}
        return sorted(
            found, key=lambda job: -max(p.started for p in job.ranks.values())
        )

    def _no_jobs(self) -> set[int]:
        """Return us and what started us, and what says that it is no job.

        Of a fork server of the lab, this one or another, that is what it has forked:
        such a rank is known by its proxy.
        """
        found = {os.getpid(), *self.above(os.getpid())}
        for pid, process in self.processes.items():
            words = process.words[:3] if process.python else []
            if NO_JOB in words:
                found |= {pid, *self.below(pid)}
            parent = self.processes.get(process.parent)
            forked = parent is not None and parent.words == process.words
            if any(word.endswith(FORK_SERVER) for word in words) and not forked:
                found |= {pid, *self.children.get(pid, [])}
        return found

    def _job(self, launcher: "Launcher", numbers: dict[Process, Number]) -> Job:
        ranks = {rank: process for process, (rank, _) in numbers.items()}
        size = max(*ranks, *(size - 1 for _, size in numbers.values())) + 1
        first, name = ranks[min(ranks)], launcher.name
        if name == "torchrun" and RUN_ID not in first.environment:
            name = "RANK and WORLD_SIZE"
        there = {rank: self._inner(ranks[rank]) for rank in sorted(ranks)}
        job = Job(name, launcher.program(first), size, there)
        here = launcher.here(first, size, ranks)
        missing = [rank for rank in range(size) if rank not in ranks]
        job.away = [rank for rank in missing if rank not in here]
        job.gone = [rank for rank in missing if rank in here]
        return self._with_family(job)

    def _inner(self, process: Process) -> Process:
        """Return a rank's process; the lab's is a fork, of which there is word."""
        log = process.environment.get("TORCHELASTIC_ERROR_FILE", os.devnull)
        try:
            fork = self.processes[int(Path(log).with_name("pid").read_text())]
        except (OSError, ValueError, KeyError):
            return process
        return replace(fork, environment=process.environment, words=process.words)

    def _with_family(self, job: Job) -> Job:
        """Add the launcher, the ranks' further processes, and those that ended."""
        members = [process.pid for process in job.ranks.values()]
        job.above = {pid for member in members for pid in self.above(member)}
        for rank, process in job.ranks.items():
            below = self.below(process.pid)
            job.workers[rank] = [p for p in below if self.processes[p].python]
        parents = {process.parent for process in job.ranks.values()}
        job.zombies = sorted(
            process.pid
            for process in self.processes.values()
            if process.status == psutil.STATUS_ZOMBIE and process.parent in parents
        )
        return job

    def alone(self, pid: int) -> Job | None:
        """Return a job of one process that is no rank; None if it is no Python."""
        process = self.processes.get(pid)
        if process is None or not process.python:
            return None
        return self._with_family(Job("python", process.program, 1, {0: process}))

    def others(self, jobs: list[Job]) -> list[Process]:
        """Return the processes that hold PyTorch, and belong to none of these jobs."""
        known = {pid for job in jobs for pid in (*job.members, *job.above)}
        known |= self._no_jobs()
        pythons = [process for process in self.processes.values() if process.python]
        return [p for p in pythons if p.pid not in known and has_torch(p.pid)]


class Launcher:
    """One way to start ranks; a process belongs to the first that numbers it."""

    name = ""

    def __init__(self, machine: Machine):
        self.machine = machine

    def number(self, process: Process) -> Number | None:
        """Return the rank that a process is, and of how many; None if it is none."""
        raise NotImplementedError

    def family(self, process: Process) -> tuple:
        """Return what the ranks of one job have in common, and two jobs have not."""
        return (process.parent,)

    def program(self, first: Process) -> str:
        """Return what to call the program of a job."""
        return first.program

    def here(self, first: Process, size: int, ranks: Collection[int]) -> Collection:
        """Return the ranks that belong on this machine, of which `ranks` are there."""
        return range(size)

    def told_above(self, process: Process, *names: str) -> bool:
        """Tell whether a process has these variables from a Python that started it."""
        there = self.machine.processes
        above = [there[p] for p in self.machine.above(process.pid) if p in there]
        mine = [process.environment.get(name) for name in names]
        theirs = [[p.environment.get(n) for n in names] for p in above if p.python]
        return mine in theirs


class Torchrun(Launcher):
    """RANK and WORLD_SIZE: torchrun sets them, and whoever starts ranks by hand."""

    name = "torchrun"

    def number(self, process: Process) -> Number | None:
        """A worker of a rank inherits its numbers; a torchrun in a pod has its own."""
        number = process.numbers("RANK", "WORLD_SIZE")
        if not number or self.told_above(process, "RANK", "WORLD_SIZE", RUN_ID):
            return None
        there = self.machine.processes
        below = [there[pid] for pid in self.machine.children.get(process.pid, [])]
        if RUN_ID not in process.environment:
            launches = any(RUN_ID in child.environment for child in below)
            return None if launches else number
        parent = there.get(process.parent)
        left_behind = not (parent and parent.python) and not has_torch(process.pid)
        return None if left_behind else number

    def family(self, process: Process) -> tuple:
        names = ("WORLD_SIZE", RUN_ID, "MASTER_ADDR", "MASTER_PORT")
        return tuple(process.environment.get(name) for name in names)

    def here(self, first: Process, size: int, ranks: Collection[int]) -> Collection:
        many, node = first.numbers("LOCAL_WORLD_SIZE", "GROUP_RANK") or (size, 0)
        return range(node * many, node * many + many)


class Spawn(Launcher):
    """Children of multiprocessing whose rank is an argument, as mp.spawn's."""

    name = "multiprocessing"

    def number(self, process: Process) -> Number | None:
        if not self.machine.forked(process) or not has_torch(process.pid):
            return None
        stack = look(process.pid).stack
        rank = spawned_rank(stack)
        size = max(self._started(process), *values(stack, "world_size"))
        return None if rank is None else (rank, size)

    def _started(self, process: Process) -> int:
        """Return how many ranks its parent starts, as the parent's stack tells."""
        return max(values(look(process.parent).stack, "nprocs"))

    def program(self, first: Process) -> str:
        return self.machine.processes[first.parent].program

    def here(self, first: Process, size: int, ranks: Collection[int]) -> Collection:
        # If all that it has started are there, others start the rest.
        return ranks if len(ranks) == self._started(first) else range(size)


class SlurmTask(Launcher):
    """The tasks of a SLURM step; all else in a job has their variables, too."""

    name = "SLURM"

    def number(self, process: Process) -> Number | None:
        names = ("SLURM_PROCID", "SLURM_NTASKS")
        alone = not self.told_above(process, *names) and has_torch(process.pid)
        return process.numbers(*names) if alone else None

    def family(self, process: Process) -> tuple:
        names = ("SLURM_JOB_ID", "SLURM_STEP_ID")
        return tuple(process.environment.get(name) for name in names)

    def here(self, first: Process, size: int, ranks: Collection[int]) -> Collection:
        get = first.environment.get
        nodes = get("SLURM_STEP_NUM_NODES") or get("SLURM_NNODES") or "1"
        return range(size) if nodes == "1" else ranks


def _once(group: dict[Process, Number]) -> list[dict[Process, Number]]:
    """Return the ranks of each job: one number twice is an old job and a new one."""
    if len({rank for rank, _ in group.values()}) == len(group):
        return [group]
    by_parent: dict[int, dict[Process, Number]] = {}
    for process, number in group.items():
        by_parent.setdefault(process.parent, {})[process] = number
    return list(by_parent.values())


def spawned_rank(stack: list[Frame]) -> int | None:
    """Return the rank of a child of multiprocessing, if its stack tells that it is one.

    It is among the variables of its outermost functions, most often as an argument: of
    the very first under mp.spawn, which else tells by the number, `i`, of the child.
    """
    if any(frame.name in WORKERS and not frame.own for frame in stack):
        return None
    own = [frame for frame in reversed(stack) if frame.own]
    wrap = [frame for frame in stack if frame.name == "_wrap"]
    own = own[:1] if wrap else own
    told = [(own, "rank"), (own, "global_rank"), (wrap, "i"), (own, "gpu")]
    return next((n for frames, name in told for n in values(frames, name)[1:]), None)


def values(frames: list[Frame], name: str) -> list[int]:
    """Return 0, and the numbers that a variable has on a stack."""
    told = (frame.values.get(name, "") for frame in frames)
    return [0, *(int(value) for value in told if value.isdecimal())]


def has_torch(pid: int) -> bool:
    """Tell whether a process has loaded PyTorch."""
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def folder(pid: int) -> str:
    """Return the folder in which a process works."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "?"

"""The jobs on this machine: which process is which rank, and of which job.

A rank is told by its environment, which launchers set and the system shows to the same
user. That of a DataLoader's worker is inherited from its rank, so it says the same; and
a child of mp.spawn is told its number as an argument, which its stack shows.
"""

import os
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from ddp_lab.kit.record.files import shorten
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.say import duration
from ddp_lab.kit.terminal.look import communicates, look

# How a launcher tells a process its number, and how many there are. The first that is
# set counts: torchrun in a SLURM job sets the first pair, and inherits the last.
NUMBERS = (
    ("RANK", "WORLD_SIZE"),
    ("LOCAL_RANK", "WORLD_SIZE"),  # Lightning's children; their parent is rank 0
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
LAUNCHERS = {
    "RANK": "RANK and WORLD_SIZE",
    "LOCAL_RANK": "LOCAL_RANK and WORLD_SIZE",
    "SLURM_PROCID": "SLURM",
}
# Everything that runs in a SLURM job has these, a shell and an editor as well.
INHERITED_BY_ALL = "SLURM_PROCID"
RUN_ID = "TORCHELASTIC_RUN_ID"
# What the ranks of one job have in common, and two jobs have not.
MEETING = (
    RUN_ID,
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
)
STARTERS = ("/ddp_lab/kit/run/proxy.py", "/ddp_lab/kit/run/rank.py")
# Of this lab or another: they hold torch, and fork what others ask for.
FORK_SERVER, GRADER = "/ddp_lab/kit/run/fork_server.py", "/classroom/engine/zygote.py"
HERE = ("localhost", "127.0.0.1", "::1", "")
# Processes in which libraries do a part of a rank's work, by a function of theirs.
WORKERS = ("_worker_loop", "_process_worker", "worker", "main_loop", "_pin_memory_loop")


@dataclass(frozen=True)
class Process:
    """What the system tells of a process."""

    pid: int
    parent: int
    words: list[str]
    environment: dict[str, str]
    started: float
    status: str
    python: bool

    @property
    def number(self) -> tuple[str, int, int] | None:
        """The variable that says it, the rank, and the number of ranks."""
        for rank, size in NUMBERS:
            values = self.environment.get(rank, ""), self.environment.get(size, "")
            if all(value.isdecimal() for value in values):
                return rank, int(values[0]), int(values[1])
        return None

    def runs(self, file: str) -> bool:
        """Tell whether a file with this end is the script of a Python."""
        return self.python and any(word.endswith(file) for word in self.words[:3])

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
    """What started it, "torchrun" say, or the variables that tell a rank its number."""
    program: str
    size: int
    """The number of ranks of the whole job."""
    ranks: dict[int, Process]
    workers: dict[int, list[int]] = field(default_factory=dict)
    """Further processes of a rank: those of its DataLoader, for example."""
    above: set[int] = field(default_factory=set)
    """Launchers, their parents, and so on."""
    away: list[int] = field(default_factory=list)
    """Ranks that run on another machine, as far as the environment tells."""
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
        numbers = f"{len(self.ranks)} of {self.size}" if self.missing else self.size
        many = "s" * (self.size > 1)
        text = f"{self.program or '?'} ({self.launcher}, {numbers} rank{many}"
        return f"{text}, for {since}, in {folder(first.pid)})"

    @property
    def missing(self) -> list[int]:
        return sorted(self.gone + self.away)


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

    def jobs(self) -> list[Job]:
        """Return all jobs that can be seen, the newest first."""
        others = {os.getpid(), *self.above(os.getpid()), *self._served()}
        numbered = {
            pid: number
            for pid, process in self.processes.items()
            if pid not in others and process.python and (number := process.number)
            if not self._launches(pid)
        }
        spawned = self._spawned(others, numbered)
        parents = {parent for _, parent in spawned}
        top = [pid for pid in numbered if self._is_rank(pid, numbered, parents)]
        groups = self._groups({pid: numbered[pid] for pid in top})
        jobs = [self._job({pid: numbered[pid] for pid in pids}) for pids in groups]
        known = {pid for job in jobs for pid in job.members}
        more = [self._spawn_job(parent, spawned) for parent in sorted(parents)]
        # A rank that is a fork of the fork server has no numbers; nor have its workers.
        jobs += [job for job in more if not known & job.members]
        return sorted(jobs, key=lambda job: -max(p.started for p in job.ranks.values()))

    def _served(self) -> set[int]:
        """Return the fork servers and what each has forked, and all of grading runs.

        What a fork server has forked is numbered by its proxy, if it is a rank of a
        job: else a test holds it. A grading run shows nothing of itself.
        """
        found: set[int] = set()
        for pid, process in self.processes.items():
            if process.runs(GRADER):
                found |= {pid, *self.below(pid)}
            parent = self.processes.get(process.parent)
            forked = parent is not None and parent.words == process.words
            if process.runs(FORK_SERVER) and not forked:
                found |= {pid, *self.children.get(pid, [])}
        return found

    # --- ranks that their environment tells ---

    def _is_rank(self, pid: int, numbered: dict[int, tuple], parents: set[int]) -> bool:
        """Tell whether a numbered process is a rank: no launcher, and no worker."""
        variable = numbered[pid][0]
        if variable == INHERITED_BY_ALL and (pid in parents or not _has_torch(pid)):
            return False
        if any(numbered.get(above) == numbered[pid] for above in self.above(pid)):
            return False
        process = self.processes[pid]
        parent = self.processes.get(process.parent)
        alone = RUN_ID in process.environment and not (parent and parent.python)
        if alone and not _has_torch(pid):  # what a rank has left behind, say
            return False
        below = [numbered[p][0] for p in self.below(pid) if p in numbered]
        return all(other == variable for other in below)

    def _launches(self, pid: int) -> bool:
        """Tell whether a process is torchrun, to which a cluster gives numbers, too."""
        family = [pid, *self.children.get(pid, [])]
        mine, *theirs = [RUN_ID in self.processes[p].environment for p in family]
        return not mine and any(theirs)

    def _inner(self, pid: int) -> Process:
        """Return the process that does the work, if `pid` only has it started."""
        process = self.processes[pid]
        log = process.environment.get("TORCHELASTIC_ERROR_FILE", os.devnull)
        try:  # a rank of the lab leaves word of its process, which may be a fork
            real = self.processes[int(Path(log).with_name("pid").read_text())]
            return replace(real, environment=process.environment, words=process.words)
        except (OSError, ValueError, KeyError):
            pass
        started = [
            child
            for child in self.children.get(pid, [])
            if self.processes[child].number == process.number
            and self.processes[child].python
            and not self._forked(child)
            and _has_torch(child)
        ]
        if started and not communicates(pid):  # else it has started a helper
            stack = look(pid).stack
            if any(frame.file.endswith("subprocess.py") for frame in stack):
                return self._inner(started[0])
        return process

    def _forked(self, pid: int) -> bool:
        """Tell whether multiprocessing, or a fork, has made this process."""
        process = self.processes[pid]
        same = process.words == self.processes[process.parent].words
        return same or any("multiprocessing" in word for word in process.words)

    def _groups(self, numbered: dict[int, tuple]) -> list[list[int]]:
        """Return the ranks of each job."""
        groups: dict[tuple, list[int]] = {}
        for pid, (variable, _, size) in numbered.items():
            process = self.processes[pid]
            meeting = tuple(process.environment.get(name) for name in MEETING)
            known = any(meeting) or None
            key = (variable, size, meeting, known or process.program)
            groups.setdefault(key, []).append(pid)
        found = []
        for pids in groups.values():
            if len({numbered[pid][1] for pid in pids}) == len(pids):
                found.append(pids)
                continue
            # One number twice: two jobs at one address, an old and a new one, say.
            launchers: dict[int, list[int]] = {}
            for pid in pids:
                launchers.setdefault(self.processes[pid].parent, []).append(pid)
            found += launchers.values()
        return found

    def _job(self, numbers: dict[int, tuple]) -> Job:
        """Return the job of these ranks, which their environment has numbered."""
        ranks = {
            rank: self._inner(pid)
            for pid, (_, rank, _) in sorted(numbers.items(), key=lambda n: n[1])
        }
        first = self.processes[min(numbers, key=numbers.__getitem__)]
        variable, _, size = numbers[first.pid]
        parent = self.processes.get(first.parent)
        if variable == "LOCAL_RANK" and 0 not in ranks and parent and parent.python:
            ranks = {0: parent, **ranks}
        launcher = LAUNCHERS.get(variable, "mpirun")
        if RUN_ID in first.environment:
            launcher = "torchrun"
        size = max(size, max(ranks) + 1)
        job = Job(launcher, first.program, size, ranks)
        expected = _expected(first.environment, size, ranks)
        missing = [rank for rank in range(size) if rank not in ranks]
        job.away = [rank for rank in missing if rank not in expected]
        job.gone = [rank for rank in missing if rank in expected]
        return self._with_family(job)

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

    # --- ranks that a program has started itself ---

    def _spawned(
        self, others: set[int], numbered: dict[int, tuple]
    ) -> dict[tuple[int, int], Process]:
        """Return the children of multiprocessing that are ranks, by rank and parent."""
        found = {}
        for pid, process in sorted(self.processes.items()):
            family = [pid, *self.above(pid)]
            told = [numbered[p][0] for p in family if p in numbered]
            if any(variable != INHERITED_BY_ALL for variable in told):
                continue  # a worker of a rank
            parent = self.processes.get(process.parent)
            child = process.python and parent is not None and parent.python
            if pid in others or not child or not self._forked(pid):
                continue
            if _has_torch(pid):
                rank = spawned_rank(look(pid).stack)
                if rank is not None:
                    found[rank, process.parent] = process
        return found

    def _spawn_job(self, parent: int, spawned: dict[tuple[int, int], Process]) -> Job:
        ranks = {rank: child for (rank, by), child in spawned.items() if by == parent}
        frames = look(parent).stack + look(ranks[min(ranks)].pid).stack
        here, world = (max(_values(frames, n)) for n in ("nprocs", "world_size"))
        size = max(max(ranks) + 1, here, world)
        program = self.processes[parent].program
        job = Job("multiprocessing", program, size, dict(sorted(ranks.items())))
        missing = [rank for rank in range(size) if rank not in ranks]
        # If all that it has started are there, others start the rest.
        job.away, job.gone = (missing, []) if len(ranks) == here else ([], missing)
        return self._with_family(job)

    def alone(self, pid: int) -> Job | None:
        """Return a job of one process that is no rank; None if it is no Python."""
        process = self.processes.get(pid)
        if process is None or not process.python:
            return None
        return self._with_family(Job("python", process.program, 1, {0: process}))


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
    return next((n for frames, name in told for n in _values(frames, name)[1:]), None)


def _values(frames: list[Frame], name: str) -> list[int]:
    """Return 0, and the numbers that a variable has on a stack."""
    told = (frame.values.get(name, "") for frame in frames)
    return [0, *(int(value) for value in told if value.isdecimal())]


def _expected(
    environment: dict[str, str], size: int, ranks: Collection[int]
) -> Collection[int]:
    """Return the ranks that belong on this machine, as far as a launcher told."""
    get = environment.get
    local = get("LOCAL_WORLD_SIZE") or get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if local and local.isdecimal():
        if int(local) >= size:
            return range(size)
        if len(ranks) >= int(local):
            return ranks
        node = get("GROUP_RANK", "")
        first = int(node) * int(local) if node.isdecimal() else 0
        return range(first, first + int(local)) if node else ranks
    nodes = get("SLURM_STEP_NUM_NODES") or get("SLURM_NNODES")
    if nodes:
        return range(size) if nodes == "1" else ranks
    at = get("MASTER_ADDR", "")
    return range(size) if at in (*HERE, socket.gethostname()) else ranks


def _has_torch(pid: int) -> bool:
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

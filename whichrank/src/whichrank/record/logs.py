"""Read what a run wrote: lines, facts, warnings, tracebacks, and where its ranks stood.

`TorchrunLog` is the log of a torchrun, `ProgramLog` that of a program that plain python
runs: it has one output, whatever it starts.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path

from whichrank.record import agents, names
from whichrank.record.agents import Agent
from whichrank.record.files import entries, read, read_json
from whichrank.record.lives import (
    Change,
    Life,
    by_attempt,
    changes,
    last_attempt,
    lives,
    node_folders,
)
from whichrank.record.rank_end import read_last_word, read_uncaught
from whichrank.record.rank_files import RankFiles
from whichrank.record.rank_log import RankLog
from whichrank.record.torch_words import EXIT_CODE

# A line may say whose it is.
NAMES_RANK = re.compile(r"\[rank (\d{1,9})\] |\{.*\"rank\": (\d{1,9})\b(?!\.)")


@dataclass(frozen=True)
class RunLog(ABC):
    """What a run wrote: its ranks, and the command that started them."""

    ranks: list[RankLog]
    stderr: str = ""
    """Of the command itself: torchrun's, or the program's own."""
    earlier: "list[list[RankLog]]" = field(default_factory=list)
    """The ranks of each attempt before this one, if torchrun has restarted them."""
    agents: list[Agent] = field(default_factory=list)
    """torchrun on each of several nodes."""
    changes: list[Change] = field(default_factory=list)
    """Which nodes came or went at the end of each attempt before this one."""
    places: dict[int, str] = field(default_factory=dict)
    """Of each rank on several nodes where it is: `node 1, local 0`; see `_places`."""
    shares_store: bool = False
    """Whether the ranks of all attempts find each other in one store."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> "RunLog":
        """Return all that is known of the run with this log folder.

        Of a long output that is the two ends.
        """

    def as_it_stood(self, before: "RunLog") -> "RunLog":
        """Return this log without what its ranks did because they were ended.

        Args:
            before: the log of the run just before it was ended.
        """
        pairs = zip(self.ranks, before.ranks, strict=False)  # some may have come since
        stood = [log.as_it_stood(its) for log, its in pairs]
        ranks = stood + self.ranks[len(stood) :]
        return replace(self, ranks=ranks, agents=before.agents)

    def ended_at(self, time: float) -> "RunLog":
        """Return this log of a run that the guard has ended at `time`."""
        return replace(self, ranks=[log.ended_at(time) for log in self.ranks])

    def with_code(self, code: int) -> "RunLog":
        """Return this log of a run whose first rank ended with the command's code."""
        first, *others = self.ranks
        return replace(self, ranks=[replace(first, code=code), *others])


@dataclass(frozen=True)
class TorchrunLog(RunLog):
    """The log of a torchrun: each rank has a folder of its own (see program.py)."""

    @classmethod
    def read(cls, folder: Path) -> "TorchrunLog":
        stderr = _stderr(folder)
        failed = [(int(rank), int(code)) for rank, code in EXIT_CODE.findall(stderr)]
        known, several = lives(folder), bool(node_folders(folder))
        last = last_attempt(known)
        # Where we see one node only, we count its ranks.
        local = {} if several else {life.rank: life.local_rank for life in last}
        codes = {local.get(rank, rank): code for rank, code in failed}
        *before, there = folders_by_attempt(folder) or [[]]
        earlier = [_read_ranks(ranks, {}) for ranks in before]
        ranks = _read_ranks(there, codes)
        nodes = agents.read_all(folder), changes(folder), _places(folder, last)
        where = [read_json(rank / names.WHERE) or {} for rank in there]
        shares = any(each.get("shares_store") for each in where)
        return cls(ranks, stderr, earlier, *nodes, shares_store=shares)


@dataclass(frozen=True)
class ProgramLog(RunLog):
    """The log of a program that plain python runs: one output, whoever writes into it.

    A line `[rank 1] ...` belongs to rank 1, a JSON object to its "rank", and anything
    else to rank 0, as does the end of the program itself (see program.py).
    """

    @classmethod
    def read(cls, folder: Path) -> "ProgramLog":
        stdout, stderr = (read(folder / name) for name in ("out", "err"))
        raised = read_uncaught(folder / names.RAISED)
        end = read_last_word(folder / names.END)
        files = RankFiles(stdout=stdout, stderr=stderr, raised=raised, end=end)
        return cls(of_program(files), stderr)


def of_program(files: RankFiles) -> list[RankLog]:
    """Return the logs of ranks that share one output; see `ProgramLog`."""
    first, *others = _by_rank_named(files.stdout)
    logs = [RankLog.of_output(RankFiles(stdout=each)) for each in others]
    return [RankLog.of_output(replace(files, stdout=first)), *logs]


def _by_rank_named(stdout: str) -> list[str]:
    """Return of one output what belongs to each rank, and to rank 0 what to none."""
    # An unbuffered print is two writes, so lines of two ranks may have run together.
    start = r'(?<=.)(?=\[rank \d+\] |\{"rank": )'
    lines = re.sub(start, "\n", stdout).split("\n")
    matches = [NAMES_RANK.match(line) for line in lines]
    named = [int(rank[1] or rank[2]) if rank else None for rank in matches]
    # A number may be anything; ranks count from 0.
    known = {*named}
    count = max(next(n for n in range(len(named) + 1) if n not in known), 1)
    texts: list[list[str]] = [[] for _ in range(count)]
    for line, rank in zip(lines, named, strict=True):
        texts[rank if rank and rank < count else 0].append(line)
    return ["\n".join(each) for each in texts]


def _stderr(folder: Path) -> str:
    """Return what torchrun has said itself, on each of its nodes."""
    texts = [read(each / names.ERR) for each in [*node_folders(folder), folder]]
    return "\n".join(filter(None, texts))


def _places(folder: Path, last: list[Life]) -> dict[int, str]:
    """Return where each rank of the last attempt is, if there are several nodes.

    Of the ranks of one node, which we count from 0, it is their number among all.
    """
    if not node_folders(folder):
        return {
            life.local_rank: f"rank {life.rank} of all {life.world_size}"
            for life in last
            if life.rank != life.local_rank
        }
    hosts = {each.name: read(each / names.HOST) for each in node_folders(folder)}
    on_host = {node: f", on {host}" for node, host in hosts.items() if host}  # of SLURM
    return {
        life.rank: life.place + on_host.get(f"node_{life.node}", "") for life in last
    }


def folders_by_attempt(folder: Path) -> list[list[Path]]:
    """Return the folders of the ranks' logs in each attempt, by rank, on all nodes."""
    if node_folders(folder):
        return [_by_rank(ranks, folder) for ranks in by_attempt(lives(folder))]
    attempts = [
        folder / run / name
        for run in entries(folder)
        for name in entries(folder / run)
        if name.startswith("attempt_") and name.removeprefix("attempt_").isdecimal()
    ]
    attempts.sort(key=lambda path: int(path.name.removeprefix("attempt_")))
    return [_ranks_of(attempt) for attempt in attempts]


def _by_rank(ranks: list[Life], folder: Path) -> list[Path]:
    """Return the log folder of each rank; those that have not come have none."""
    there = {life.rank: life.folder for life in ranks}
    size = max(life.world_size for life in ranks)
    return [there.get(rank, folder / "absent" / str(rank)) for rank in range(size)]


def rank_folders(folder: Path) -> list[Path]:
    """Return the folders of the ranks' logs in the last attempt, by rank."""
    return next(iter(folders_by_attempt(folder)[-1:]), [])


def _ranks_of(attempt: Path) -> list[Path]:
    """Return the folders of the ranks' logs in this attempt, by rank.

    Not all need be there: a rank may have removed its own, or another's.
    """
    numbers = [name for name in entries(attempt) if name.isdecimal()]
    ranks = [int(name) for name in numbers if (attempt / name).is_dir()]
    return [attempt / str(rank) for rank in range(max(ranks, default=-1) + 1)]


def _read_ranks(folders: list[Path], codes: dict[int, int]) -> list[RankLog]:
    """Return all that is known of the ranks of an attempt.

    Args:
        folders: those of their logs, by rank; they need not be there.
        codes: the exit codes of the ranks that torchrun calls failed, if it has said.
    """
    others = 0 if codes else None
    return [
        RankLog.of(RankFiles.read(folder), codes.get(rank, others))
        for rank, folder in enumerate(folders)
    ]

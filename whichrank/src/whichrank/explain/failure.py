"""Why a run failed: the facts, and the report that a reader gets of them."""

from dataclasses import dataclass, field

from whichrank.explain.cause import Cause, Ended, Stand, rank_at
from whichrank.explain.causes.beside import Attempts
from whichrank.explain.symptoms import Symptom
from whichrank.record import stacks
from whichrank.record.files import shorten
from whichrank.record.words import ranks


@dataclass(frozen=True)
class Failure:
    """Why a run failed: the facts, and by its properties the words for them."""

    kind: str
    """"exception", "signal", "exit"; "timeout", "interrupt" or "output" if the run was
    stopped; "guard", "torchrun", "nodes", "srun" or "warm" if a signal from outside has
    ended what the ranks depend on; "slurm" if SLURM has ended them; "launch" if no rank
    was started; "node" if a node was lost, or the nodes did not come together."""
    why: Cause
    also: tuple[Cause, ...] = ()
    """What is known besides."""
    traceback: str = field(default="", repr=False)
    by_rank: dict[int, Cause | Stand] = field(default_factory=dict)
    """What is known of the other ranks: their own failures and, if somebody waited in
    vain, where each rank stood. A rank that only lost its connection is left out."""
    stands: list[Stand] = field(default_factory=list, repr=False)
    """Where each rank stood when it was last seen, if the run stood still."""
    attempts: Attempts | None = None
    """How the attempts before this one failed, if torchrun has restarted the ranks."""
    places: dict[int, str] = field(default_factory=dict)
    """Of each rank on several nodes where it is: `node 1, local 0`."""

    @property
    def rank(self) -> int | None:
        """The rank that failed first; None when no rank is to blame alone."""
        return self.why.rank

    @property
    def node(self) -> int | None:
        """The node that is to blame, if no rank is."""
        return self.why.node

    @property
    def symptom(self) -> Symptom | None:
        """What this is called, if it is a known way to go wrong."""
        return self.why.symptom

    @property
    def by_chance(self) -> bool:
        """Whether another rank failed likewise: which one was the first is chance."""
        others = [each for rank, each in self.by_rank.items() if rank != self.rank]
        ways = [each.way for each in others if isinstance(each, Ended)]
        return isinstance(self.why, Ended) and self.why.way in ways

    @property
    def cause(self) -> str:
        """One line: the exception, the signal, the exit code, or who waits for whom."""
        return str(self.why)

    @property
    def where(self) -> str | None:
        """The program's own line, as in `sick.py:45 in pass_on`."""
        return self.why.frame.place if self.why.frame else None

    @property
    def line(self) -> int | None:
        """Its number."""
        return self.why.frame.line if self.why.frame else None

    @property
    def means(self) -> str | None:
        """What the cause usually means, and what else is known, in one line."""
        notes = [self.why.advice, *(str(each) for each in self.also)]
        return "; ".join(filter(None, notes)) or None

    @property
    def others(self) -> dict[int, str]:
        """What is told of the other ranks."""
        return {rank: of_rank(each) for rank, each in self.by_rank.items()}

    @property
    def earlier(self) -> list[str]:
        """What is told of the attempts before this one."""
        return self.attempts.sentences() if self.attempts else []

    def report(self, traceback: bool = True) -> str:
        """Return the cause, then the evidence, then the other ranks."""
        text = [f"{self.why.who(self.places)}: {self.cause}"]
        if self.where:
            text.append(f"  at {self.where}")
        if self.means:
            text.append(f"  {self.means}")
        if traceback and (trace := stacks.brief(self.traceback, self.cause)):
            text.append(f"\n{trace}\n")
        same = [rank for rank, each in self.by_rank.items() if self._is_same(each)]
        if same:
            text.append(f"  {ranks(same)}: the same")
        for rank, each in self.by_rank.items():
            if rank not in same and (what := self._beside(each)):
                text.append(f"  {rank_at(rank, self.places)}: {what}")
        text += [f"  {line}" for line in self.earlier]
        return "\n".join(text)

    def _is_same(self, known: Cause | Stand) -> bool:
        """Tell whether another rank has failed in the same words at the same line."""
        if isinstance(known, Stand) or str(known) != self.cause:
            return False
        return known.frame == self.why.frame

    def _beside(self, known: Cause | Stand) -> str:
        """Return what is told of a rank, unless the cause tells all of it."""
        if isinstance(known, Stand) and self.why.tells_all == known.rank:
            return known.now() if known.watched else ""
        if isinstance(known, Cause) and str(known) == self.cause and known.frame:
            return f"the same at {known.frame.place}"
        return of_rank(known)


def of_rank(known: Cause | Stand) -> str:
    """Return what is told of a rank beside the cause."""
    return str(known) if isinstance(known, Stand) else shorten(str(known))

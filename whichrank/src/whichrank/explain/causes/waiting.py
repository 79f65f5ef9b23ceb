"""Why ranks stand still: who waits for whom, or what they do not do alike."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass

from whichrank.explain.cause import MEETING, SHOWN, Cause, Stand
from whichrank.explain.states import (
    MESSAGES,
    Away,
    Computes,
    Elsewhere,
    Halted,
    Left,
    Moves,
    Unseen,
    Waits,
)
from whichrank.explain.symptoms import Symptom
from whichrank.record.calls import Call
from whichrank.record.stacks import parting
from whichrank.record.words import conjugate, listed, ranks, sides, times


@dataclass(frozen=True)
class Counted:
    """A call that some ranks have made more often than others, at one line."""

    call: Call
    """As one of them has made it."""
    times: Mapping[int, int]
    """By rank."""
    since: Call | None = None
    """The call from which on they are counted, if not all are on record."""

    def __str__(self) -> str:
        at = f" at {self.call.frame.short}" if self.call.frame else ""
        by_count = sides((count, rank) for rank, count in self.times.items())
        by_count = dict(sorted(by_count.items(), reverse=True))  # "never" comes last
        numbers = [f"{times(count)} on {ranks(on)}" for count, on in by_count.items()]
        means = ""
        if self.call.sends_gradients:
            means = ": a rank skipped a backward, or its loss reached no weight "
            means += "of the model"
        since = f"since call {self.since.number}, " if self.since else ""
        return f"{since}{self.call.what}{at} was made {', but '.join(numbers)}{means}"


# --- one to blame ---


@dataclass(frozen=True, kw_only=True)
class Absent(Cause):
    """Ranks are elsewhere, have left or are halted, and others wait for them."""

    away: tuple[Stand, ...]
    waiting: tuple[Waits, ...]
    before: Counted | None = None
    """What they have not done alike before."""

    def __str__(self) -> str:
        names = [stand.rank for stand in self.away]
        if self.waiting and self.rank in [stand.rank for stand in self.waiting]:
            them = f"{ranks(names)} {self._do(names)}"
            return f"waits in {self.waiting[0].name}, but {them}"
        if names == [self.rank]:
            clauses = [self._clause(self.away[0])]
        elif len(names) > 1 and len({self._clause(s) for s in self.away}) == 1:
            clauses = [f"{ranks(names)} {self._do(names)}"]
        else:
            clauses = [f"rank {each.rank} {self._clause(each)}" for each in self.away]
        if self.waiting:
            clauses.append(f"and {wait(self.waiting)}")
        return ", ".join(clauses)

    @property
    def advice(self) -> str:
        """What they have not done alike."""
        return str(self.before or "")

    def _clause(self, stand: Stand) -> str:
        return stand.unable or self._do([stand.rank])

    def _do(self, who: Sized) -> str:
        if not all(isinstance(stand, Left) for stand in self.away):
            return f"{conjugate('have', who)} not come"
        if all(stand.pid == 0 for stand in self.away):  # was it ever started?
            return f"{conjugate('are', who)} not there"
        return f"{conjugate('have', who)} left"


@dataclass(frozen=True, kw_only=True)
class GroupsDiffer(Cause):
    """Some ranks have called new_group less often than the others."""

    ranks: tuple[int, ...]

    def __str__(self) -> str:
        fewer = f"{ranks(self.ranks)} {conjugate('have', self.ranks)}"
        return (
            f"every rank has to call new_group for every group, but {fewer} called it "
            "less often than the others"
        )


@dataclass(frozen=True, kw_only=True)
class NotMet(Cause):
    """The ranks do not find each other."""

    looks: str = ""
    """The address and port where they look, or the one to blame, if not torchrun but
    the program has set it."""

    def __str__(self) -> str:
        if self.rank is not None:
            return f"looks for the others at {self.looks}, which the program has set"
        waits = f"every rank waits in {MEETING}, and does not find the others"
        if not self.looks:
            return waits
        return (
            f"{waits}: nobody listens at {self.looks}, which the program has set. "
            "Under torchrun rank 0 opens no store of its own, unless "
            "TORCHELASTIC_USE_AGENT_STORE is False"
        )


# --- none to blame, or all ---


@dataclass(frozen=True, kw_only=True)
class Circle(Cause):
    """Each rank waits for the next one, and the last for the first."""

    stands: tuple[Waits, ...]
    to: tuple[int, ...]
    """Whom each of them waits for."""
    before: Counted | None = None
    """What one of them has done otherwise before it came here."""

    def __str__(self) -> str:
        if self.answered:
            way = "a message on its way, or they mean different groups or tags"
            return f"{self._waits()}: {way}"
        return str(self.before or self._waits())

    @property
    def advice(self) -> str:
        """Who waits for whom, if the sentence tells how it came to that."""
        return self._waits() if self.before and not self.answered else ""

    def _waits(self) -> str:
        return ", ".join(
            f"rank {stand.rank} waits in {stand.name} for rank {to}"
            for stand, to in zip(self.stands, self.to, strict=True)
        )

    @property
    def answered(self) -> bool:
        """Whether it is a send and its recv, which do not find each other."""
        return [*{s.name for s in self.stands}] in (["send", "recv"], ["recv", "send"])


@dataclass(frozen=True, kw_only=True)
class CallsDiffer(Cause):
    """A call of one group is not the same on all ranks."""

    calls: Mapping[int, Call]
    """By rank. As torch names them, they have no number."""
    before: Counted | None = None
    raced: bool = False
    """Whether two threads of a rank were at it, so that which came first is chance."""

    def __str__(self) -> str:
        return str(self.before or self.differs)

    @property
    def differs(self) -> str:
        """The call, and what it is on each rank."""
        at = _lines(self.calls)
        by_call = sides((f"{call.whole}{at[r]}", r) for r, call in self.calls.items())
        first = next(iter(self.calls.values()))
        if not first.number:
            return ", but ".join(f"{ranks(on)} calls {w}" for w, on in by_call.items())
        sentence = ", but ".join(
            f"{what} on {ranks(on)}" for what, on in by_call.items()
        )
        return f"call {first.number} is {sentence}"

    @property
    def advice(self) -> str:
        """The call, if the sentence tells what came before; what to do about chance."""
        if self.before:
            return self.differs
        chance = "a thread and the main thread call on one group, in an order that is "
        chance += "chance: give the thread a group of its own"
        return chance if self.raced else ""


@dataclass(frozen=True, kw_only=True)
class RootsDiffer(Cause):
    """Ranks wait in one call, and mean different ranks by its src or dst."""

    name: str
    """`src` or `dst`."""
    stands: tuple[Waits, ...]

    def __str__(self) -> str:
        by_root = sides((stand.root, stand.rank) for stand in self.stands)
        means = ", ".join(f"{root} on {ranks(on)}" for root, on in by_root.items())
        where = self.stands[0].name
        return f"the ranks wait in {where} with different {self.name}: {means}"


@dataclass(frozen=True, kw_only=True)
class SizesDiffer(Cause):
    """gloo got more bytes, or fewer, than it had expected."""

    came: int
    expected: int
    name: str = ""
    """The call."""

    def __str__(self) -> str:
        sizes = f"a message of {self.came} bytes came where one of {self.expected} was"
        if self.name in MESSAGES:
            return f"{sizes} expected: sender and receiver mean different sizes"
        if self.name.startswith("all_to_all"):
            means = "what one rank sends is not what another expects of it"
            return f"{sizes} expected: {means}, compare the splits of both"
        means = f"the ranks bring tensors of different sizes to {self.name or 'a call'}"
        return f"{sizes} expected (a tensor or a piece of one): {means}"


@dataclass(frozen=True, kw_only=True)
class Apart(Cause):
    """All wait, and it is not known why they do not come together."""

    waiting: tuple[Waits, ...]
    away: tuple[Stand, ...] = ()
    """Those that do not wait, and of whom nobody knows whether they should be there."""
    passed: tuple[int, ...] = ()
    """The ranks that have passed the call in which the others wait."""
    means: str = ""
    """What they may not mean alike then: `src` or `dst`."""

    def __str__(self) -> str:
        if self.passed:
            passed = f"{ranks(self.passed)} {conjugate('have', self.passed)} passed"
            alike = f"they do not all mean the same {self.means}"
            return f"{wait(self.waiting)}, which {passed}: {alike}"
        if self.away:
            others = [f"rank {stand.rank} {_of(stand)}" for stand in self.away]
            return ", ".join([wait(self.waiting), *others])
        if self.unanswered:
            return f"every rank waits in {self.waiting[0].name}, so nobody answers"
        by_call = self._by_call()
        if len(by_call) > 1:
            calls = ", ".join(f"{ranks(on)} in {call}" for call, on in by_call.items())
            return f"the ranks wait in different calls: {calls}"
        (name,) = {stand.name for stand in self.waiting}
        lines = [*dict.fromkeys(stand.short() for stand in self.waiting)]
        apart = f", at different lines: {' and '.join(lines[:SHOWN])}"
        known = all(stand.call for stand in self.waiting)
        compares = "" if known else " (`whichrank torchrun` compares them)"
        return (
            f"every rank waits in {name}{apart * (len(lines) > 1)}, but they do not "
            f"meet: groups, sizes or earlier calls may differ{compares}"
        )

    @property
    def unanswered(self) -> bool:
        """Whether all wait for a message, of which there is no record."""
        names = {stand.name for stand in self.waiting}
        recorded = any(stand.call for stand in self.waiting)
        messages = len(names) == 1 and names <= {*MESSAGES}
        return messages and not (recorded or self.away)

    @property
    def in_one_call(self) -> bool:
        """Whether all wait in one call, as far as is known."""
        rest = self.passed or self.unanswered or self.away
        return not rest and len(self._by_call()) == 1

    def _by_call(self) -> dict[str, list[int]]:
        one_name = len({stand.name for stand in self.waiting}) == 1
        members = {stand.call and stand.call.members for stand in self.waiting}
        return sides(
            (f"{s.name}{_group(s, len(members) > 1) if one_name else ''}", s.rank)
            for s in self.waiting
        )


@dataclass(frozen=True, kw_only=True)
class Busy(Cause):
    """No rank is seen to wait for another: each has something of its own to do, or has
    done its main program and does not end."""

    stands: tuple[Stand, ...]
    remote: bool = False
    """Whether one of them is in a remote call."""

    def __str__(self) -> str:
        rest = "no rank is seen to wait for another"
        if self.remote:
            rest = "of remote calls nobody records who waits for whom"
        by_place = sides(
            (stand.place() if self.remote else stand.short(), stand.rank)
            for stand in self.stands
        )
        where = [
            f"{ranks(on)} {conjugate('stand', on)} at {place}"
            for place, on in by_place.items()
        ]
        if len(self.stands) == 1:
            where = [self.stands[0].clause()]
            if not self.remote:
                return where[0]
        return ", ".join([*where, f"and {rest}"])

    @property
    def advice(self) -> str:
        """What they do, if that is known to go wrong."""
        known = self.symptom not in (None, Symptom.BUSY)
        return f"that is: {self.symptom.means}" if self.symptom and known else ""

    @property
    def tells_all(self) -> int | None:
        """The one rank of which the sentence tells all."""
        return self.stands[0].rank if len(self.stands) == 1 else None


# --- what a few looks from outside show; see `whichrank why` ---

DOES = {
    Halted: "{is} stopped by a signal or a debugger",
    Left: "{is} not there",
    Elsewhere: "{stand} at {place}",
    Computes: "{is} busy at {place}",
    Moves: "{move}",
    Unseen: "cannot be looked at",
    Away: "{is} not on this machine",
}


@dataclass(frozen=True, kw_only=True)
class Does(Cause):
    """What each rank does, where that is all that is known."""

    stands: tuple[Stand, ...]

    def __str__(self) -> str:
        states = {type(stand) for stand in self.stands}
        if states == {Left}:
            return "it has ended while we looked"
        if states == {Moves}:
            count = len(self.stands)
            return f"all {count} ranks move" if count > 1 else "it moves"
        *most, last = self._clauses()
        return f"{', '.join(most)}, and {last}" if most else last

    def _clauses(self) -> list[str]:
        clauses: list[str] = []
        for state, words in DOES.items():
            if there := [s for s in self.stands if isinstance(s, state)]:
                on = [stand.rank for stand in there]
                subject = f"{ranks(on)} " if self.rank is None or clauses else ""
                verbs = {v: conjugate(v, on) for v in ("stand", "move")}
                verbs["is"] = conjugate("are", on)
                lines = [*dict.fromkeys(stand.short() for stand in there)][:SHOWN]
                words = words.format(place=" and ".join(lines), **verbs)
                clauses.append(subject + words)
        waiting = [stand for stand in self.stands if isinstance(stand, Waits)]
        for name in dict.fromkeys(stand.name for stand in waiting):
            clauses.append(wait([stand for stand in waiting if stand.name == name]))
        return clauses

    @property
    def tells_all(self) -> int | None:
        """The one rank of which the sentence tells all."""
        return self.stands[0].rank if len(self.stands) == 1 else None


def wait(waiting: Sequence[Waits]) -> str:
    """Return `rank 0 waits in barrier`, or who waits in which call."""
    calls = sides((each.name, each.rank) for each in waiting)
    return listed(
        f"{ranks(on)} {conjugate('wait', on)} in {name}" for name, on in calls.items()
    )


def _of(stand: Stand) -> str:
    """Return where a rank is that is not blamed: it has ended well, say."""
    if stand.ended_well:
        return "has ended (exit code 0)"
    return stand.unable or stand.clause()


def _group(stand: Waits, with_members: bool) -> str:
    if stand.members:  # of the group that it makes
        return f" of {stand.members}"
    if not stand.call:
        return ""
    if with_members and stand.call.members:
        return f" of group {stand.call.group} ({ranks(stand.call.members)})"
    return f" of group {stand.call.group}"


def _lines(calls: Mapping[int, Call]) -> dict[int, str]:
    """Return by rank where it has made its call, and how it has come there.

    The line of a helper tells little: what differs may be the line that calls it.
    """
    paths = {rank: call.path for rank, call in calls.items()}
    apart = parting(paths.values())
    lines = {}
    for rank, path in paths.items():
        places = [path[-1].short] if path else []
        if apart is not None and apart < len(path) - 1:
            places.append(path[apart].short)
        lines[rank] = f" at {', called at '.join(places)}" if places else ""
    return lines

"""Find out why a run stands still: who waits for whom, and who is elsewhere.

Of each rank that waits it is often known for whom (`Stand.peers`): in a collective for
the members of the group that have not made this call yet, in send and recv for the
other end. From rank to rank that is a graph. Who is waited for, and waits for nobody,
is to blame; ranks that wait in a circle are told as one, and none is to blame for it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from whichrank.explain import counts
from whichrank.explain.cause import MEETING, Cause, Stand, odd_one
from whichrank.explain.causes.waiting import (
    Absent,
    Apart,
    Busy,
    CallsDiffer,
    Circle,
    Counted,
    Does,
    GroupsDiffer,
    NotMet,
    RootsDiffer,
)
from whichrank.explain.stands import ROOT_ARGUMENT, RPC
from whichrank.explain.states import (
    Away,
    Computes,
    Elsewhere,
    Halted,
    Left,
    Lingers,
    Moves,
    Unknown,
    Unseen,
    Waits,
)
from whichrank.explain.symptoms import Symptom
from whichrank.record.calls import (
    Call,
    Key,
    calls_until,
    first_mismatch,
    kept_by_all,
)
from whichrank.record.rank_log import RankLog
from whichrank.record.source import in_one_loop

RESTLESS = (Moves, Computes, Unseen, Away)  # of which nobody knows what comes next
# The states of whom the others may be waiting for, first of those who will hardly come.
MISSING = (Halted, Left, Elsewhere, Computes, Moves)
ABSENT = (Elsewhere, Lingers, Left, Halted)  # of a rank that does not come
SPAWN = os.path.join("torch", "multiprocessing", "spawn.py")
LOCAL = "use_local_synchronization"
LARGE = 2**20  # bytes from which on gloo cuts a tensor into more pieces


@dataclass(frozen=True)
class Snapshot:
    """What is known of all ranks at one moment, by rank."""

    logs: Sequence[RankLog]
    stands: Sequence[Stand]

    @cached_property
    def waiting(self) -> list[Waits]:
        """Return where those stand that wait in a communication."""
        return [stand for stand in self.stands if isinstance(stand, Waits)]

    @cached_property
    def calls(self) -> list[list[Call]]:
        """Return the calls of each rank."""
        return [log.calls for log in self.logs]

    def passed(self, key: Key, name: str) -> list[int]:
        """Return the ranks that are done with a call."""
        return [
            rank
            for rank, calls in enumerate(self.calls)
            if any((c.key, c.name, c.done) == (key, name, True) for c in calls)
        ]


def diagnose(logs: Sequence[RankLog], stands: Sequence[Stand]) -> Cause | None:
    """Return why the run stands still; None if what is known does not tell."""
    seen = Snapshot(logs, stands)
    if any(isinstance(stand, RESTLESS) for stand in stands):
        return _restless(seen)
    return next(filter(None, (step(seen) for step in STEPS)), None)


# --- nobody is in a group yet ---


def _not_met(seen: Snapshot) -> Cause | None:
    """No rank finds the others: they look at different places."""
    at = [seen.logs[stand.rank].meets for stand in seen.waiting]
    if {s.name for s in seen.waiting} != {MEETING} or len(at) < len(seen.stands):
        return None
    cause = NotMet(frame=seen.waiting[0].frame, symptom=Symptom.RENDEZVOUS)
    moved = [stand for stand in seen.waiting if len({*at[stand.rank]}) > 1]
    looks = at[moved[0].rank][-1] if moved else ""
    if len(moved) == len(at):
        return replace(cause, looks=looks)
    if len(moved) == 1 and all(at):
        return replace(cause, looks=looks, rank=moved[0].rank, frame=moved[0].frame)
    return cause


# --- ranks meet in one call of one group, and it is not the same call ---


def _calls_differ(seen: Snapshot) -> Cause | None:
    return find_difference(seen.calls)


def find_difference(
    calls: Sequence[Sequence[Call]],
    aborted: tuple[int, int] | None = None,
) -> CallsDiffer | None:
    """Return which call was not the same on all ranks, and what each rank did instead.

    Args:
        calls: of each rank.
        aborted: a rank without a record that got more than its tensor has room for, and
            the bytes that it had expected.
    """
    by_rank = first_mismatch(calls)
    if not by_rank:
        return None
    what = {rank: call.brings for rank, call in by_rank.items()}
    if aborted and aborted[0] not in what:
        what[aborted[0]] = _brought(calls, by_rank, aborted[1])
    rank = odd_one(what)
    frame = by_rank[rank if rank is not None else min(by_rank)].frame
    same = len({call.does for call in by_rank.values()}) == 1
    symptom = Symptom.DIFFERENT_TENSORS if same else Symptom.DIFFERENT_CALLS
    cause = CallsDiffer(rank=rank, frame=frame, symptom=symptom, calls=by_rank)
    if any(_race(its, by_rank) for its in calls):
        known = (call.frame for call in by_rank.values() if call.frame)
        return replace(cause, rank=None, frame=next(known, None), raced=True)
    return replace(cause, before=counts.before(calls, by_rank))


def _race(calls: Sequence[Call], by_rank: dict[int, Call]) -> bool:
    """Tell whether two threads of a rank are in calls of the group that differs."""
    groups = {call.group for call in by_rank.values()}
    now = {c.in_thread for c in calls if c.group in groups and not c.done and not c.p2p}
    return len(now) > 1


def _brought(
    calls: Sequence[Sequence[Call]], by_rank: dict[int, Call], expected: int
) -> str:
    """Return what a rank has brought to a call, which expected so many bytes there.

    That is the least that others have brought, unless something else that has been
    brought at this line fits as well, or better.
    """
    least = min(by_rank.values(), key=lambda call: call.size)
    like = [call for call in chain(*calls) if call.kind == least.kind]
    fit = {call.brings for call in like if expected in call.messages(len(calls))}
    if not fit and least.does == "all_reduce" and least.size < LARGE:
        return "what nobody has recorded"
    return " or ".join(sorted(fit or {least.brings}))


def _groups_differ(seen: Snapshot) -> Cause | None:
    """Some rank makes a group, and others have made fewer, or make another one."""
    names = {stand.name for stand in seen.waiting}
    if "new_group" not in names or any(isinstance(s, ABSENT) for s in seen.stands):
        return None
    if any(f.values.get(LOCAL) == "True" for log in seen.logs for f in log.stack):
        return None  # then only members make a group
    makers = tuple(stand for stand in seen.waiting if stand.members)
    if len({stand.members for stand in makers}) > 1:  # however often they have
        symptom = Symptom.DIFFERENT_CALLS
        return Apart(frame=makers[0].frame, symptom=symptom, waiting=makers)
    # A rank that has raised and left its groups has none to count.
    there = [stand for stand in seen.waiting if seen.logs[stand.rank].groups]
    made = {
        s.rank: len(seen.logs[s.rank].groups) + (s.name == "new_group") for s in there
    }
    fewest = tuple(rank for rank in made if made[rank] == min(made.values()))
    if len(fewest) == len(made):
        return None
    frame = seen.stands[fewest[0]].frame
    rank = fewest[0] if len(fewest) == 1 else None
    return GroupsDiffer(rank=rank, frame=frame, symptom=Symptom.GROUPS, ranks=fewest)


def _roots_differ(seen: Snapshot) -> Cause | None:
    """Some wait in one collective that all have made, with another src or dst."""
    rooted = [stand for stand in seen.waiting if stand.name in ROOT_ARGUMENT]
    made = [stand for stand in rooted if not stand.peers]
    if not made:
        return None
    first = min(made, key=lambda stand: stand.call.number if stand.call else 0)
    same = [s for s in rooted if (s.name, s.group) == (first.name, first.group)]
    if first.call:
        same = [s for s in same if not _repeats(seen.calls[s.rank], first.call)]
    symptom, name = Symptom.DIFFERENT_CALLS, ROOT_ARGUMENT[first.name][0]
    known = tuple(stand for stand in same if stand.root is not None)
    if len({stand.root for stand in known}) > 1:
        rank = odd_one({stand.rank: stand.root for stand in known})
        frame = (first if rank is None else seen.stands[rank]).frame
        cause = RootsDiffer(rank=rank, frame=frame, name=name, stands=known)
        return replace(cause, symptom=symptom)
    passed = seen.passed(first.call.key, first.name) if first.call else []
    if len(passed) + len(same) < len(seen.stands) or not passed:
        return None
    apart = Apart(frame=first.frame, symptom=symptom, waiting=tuple(same))
    return replace(apart, passed=tuple(passed), means=name)


def _repeats(calls: list[Call], call: Call) -> bool:
    """Tell whether a rank has made a call once more since, and so is past it.

    A call for objects makes several of one group, of their sizes and their data: these
    differ from each other.
    """
    since = calls[len(calls_until(calls, call.key)) :]
    what = call.group, call.does, call.dtypes
    return what in [(c.group, c.does, c.dtypes) for c in since]


# --- who waits for whom ---


def _circle(seen: Snapshot) -> Cause | None:
    """Each of some ranks waits for the next one."""
    waiting = {stand.rank: stand for stand in seen.waiting}
    path = _shortest_circle({rank: stand.peers for rank, stand in waiting.items()})
    if not path:
        return None
    stands = tuple(waiting[rank] for rank in path)
    cause = Circle(
        frame=stands[0].frame,
        symptom=Symptom.CYCLE,
        stands=stands,
        to=(*path[1:], path[0]),
    )
    if cause.answered:  # they mean each other
        return replace(cause, symptom=Symptom.BUSY)
    groups = {s.rank: s.call for s in seen.waiting if s.call and s.peers}
    if {*path} <= {*groups}:
        cause = replace(cause, symptom=Symptom.DIFFERENT_CALLS)
        return _other_group(seen, cause, groups) or _strayed(seen, cause, groups)
    return cause


def _shortest_circle(peers: dict[int, tuple[int, ...]]) -> list[int]:
    """Return ranks of which each waits for the next one, and the last for the first."""
    circles = (_way_back(rank, peers) for rank in sorted(peers))
    return min(filter(None, circles), key=len, default=[])


def _way_back(start: int, peers: dict[int, tuple[int, ...]]) -> list[int]:
    """Return the shortest way from a rank to itself, from who waits to whom."""
    came_from: dict[int, int] = {}
    queue = [start]
    for rank in queue:
        for peer in peers.get(rank, ()):
            if peer == start:
                path = [rank]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if peer not in came_from:
                came_from[peer] = rank
                queue.append(peer)
    return []


def _other_group(seen: Snapshot, cause: Circle, calls: dict[int, Call]) -> Cause | None:
    """They wait in groups that have the same members: one may have taken another."""
    groups = {rank: call.group for rank, call in calls.items()}
    members = {call.members for call in calls.values()}
    if len({*groups.values()}) < 2 or len(members) > 1:
        return None
    rank = odd_one(groups)
    frame = cause.frame if rank is None else seen.stands[rank].frame
    waiting = tuple(stand for stand in seen.waiting if stand.rank in groups)
    symptom = Symptom.DIFFERENT_CALLS
    return Apart(rank=rank, frame=frame, symptom=symptom, waiting=waiting)


def _strayed(seen: Snapshot, circle: Circle, calls: dict[int, Call]) -> Circle:
    """Add what one rank of the circle has done otherwise than all that it is beside.

    In a mesh rank 3 skips a call of its column, and goes on: who waits for it there,
    and who has come as far as it has, have all made one more. Or the one that waits
    has made one too many. Where nobody can tell who is right, that is told of both.
    """
    told = circle
    for stand, other in zip(circle.stands, circle.to, strict=True):
        key, waits = calls[other].key, stand.rank
        beside = [rank for rank, call in calls.items() if call.key == key]
        if waits in beside or len(beside) < 2:
            continue
        made = {rank: calls_until(seen.calls[rank], key) for rank in (*beside, waits)}
        made, since = kept_by_all({rank: made[rank] for rank in sorted(made)})
        for before in counts.unlike(made):
            rank, counted = odd_one(before.times), replace(before, since=since)
            if rank not in (waits, other):
                continue
            if _tells(before, stand, calls[waits], made):
                frame = seen.stands[rank].frame
                return replace(circle, rank=rank, frame=frame, before=counted)
            if before.call.kind != calls[other].kind:  # to which it has yet to come
                told = replace(circle, before=told.before or counted)
    return told


def _tells(
    counted: Counted, stand: Stand, call: Call, made: dict[int, list[Call]]
) -> bool:
    """Tell whether a call that was made more often explains why a rank waits in `call`.

    It is one of the same group. To its line all have come, or else there is no telling
    who is right; but if all others of three or more are missing, it is one too many.
    """
    kind = counted.call.kind
    if kind not in [c.kind for c in made[stand.rank] if c.group == call.group]:
        return False
    alone = 2 <= len(stand.peers) == len(call.members) - 1
    return min(counted.times.values()) > 0 or alone and kind == call.kind


def _absent(seen: Snapshot) -> Cause | None:
    """Name the ranks for which others wait, and that wait for nobody."""
    wanted = {peer for stand in seen.waiting for peer in stand.peers}
    absent: list[Stand] = [s for s in seen.stands if isinstance(s, ABSENT)]
    if not seen.waiting or not (absent or wanted):
        return None
    if wanted:  # by name: then nobody else is missing
        absent = [stand for stand in absent if stand.rank in wanted]
    elif any(stand.by_message for stand in seen.waiting):
        return None  # from whom the message comes, nobody knows
    if not absent and {stand.peers for stand in seen.waiting} == {tuple(wanted)[:1]}:
        # All wait for one rank, be its stack unreadable: it may be another program.
        them = [stand for stand in seen.stands if stand.rank in wanted]
        absent = [s for s in them if isinstance(s, Unknown)]
    # Some may be no members of the group in which the others wait.
    unsure = not wanted and any(stand.names_group for stand in seen.waiting)
    if not absent or unsure and len(absent) > 1:
        return None
    first, one = seen.waiting[0], absent[0].rank if len(absent) == 1 else None
    left = isinstance(absent[0], Left | Halted)  # else it is at some line of its own
    frame = absent[0].frame or (first.frame if left else None)
    cause = Absent(
        rank=one,
        frame=frame,
        symptom=Symptom.ABSENT,
        away=tuple(absent),
        waiting=tuple(seen.waiting),
        before=_drifted(seen, first, absent),
    )
    agree = len(absent) > 1 and all(_is_past(stand, first) for stand in absent)
    if len(seen.waiting) == 1 and agree:
        return replace(cause, rank=first.rank, frame=first.frame)
    if len(seen.stands) == 2 and absent[0].ended_well:  # which of two is right?
        return replace(cause, rank=None, frame=first.frame)
    return cause


def _drifted(seen: Snapshot, waits: Waits, left: Sequence[Stand]) -> Counted | None:
    """Return a call that those that have left have made more or less often.

    Calls at two lines may be alike, as two sums of a number are: then nobody notices
    before there is one too few. Who has not left by its end keeps no full record.
    """
    ends = [seen.logs[stand.rank].end for stand in left if stand.ended_well]
    told_all = len(ends) == len(left) and not any(end and end.early for end in ends)
    if not (call := waits.call) or not told_all:
        return None
    made = {rank: calls_until(its, call.key) for rank, its in enumerate(seen.calls)}
    made = {r: [c for c in its if c.group == call.group] for r, its in made.items()}
    made, since = kept_by_all({rank: its for rank, its in made.items() if its})
    counted = [each for each in counts.unlike(made) if each.call.kind != call.kind]
    return replace(counted[0], since=since) if counted else None


def _is_past(stand: Stand, waits: Waits) -> bool:
    """Tell whether a rank will not come any more to the line where another one waits.

    One that stands before that line, or in a loop around it, may only be slow.
    """
    lines = counts.where_they_part(stand.outer[::-1], waits.outer[::-1])
    if isinstance(stand, Left) or lines is None:
        return isinstance(stand, Left)
    return lines[0].line > lines[1].line and not in_one_loop(*lines)


def _unable(seen: Snapshot) -> Cause | None:
    """Some rank was halted by a signal, or has raised: it will not come, ever.

    If it waits in one call with others since, as in a `with`, that is no reason.
    """
    met = [(stand.call.key, stand.call.does) for stand in seen.waiting if stand.call]
    unable = []
    for stand in seen.stands:
        since = stand.end.since if stand.end else None
        call = since.call if isinstance(since, Waits) else None
        if stand.unable and not (call and (call.key, call.does) in met):
            unable.append(stand)
    if not unable:
        return None
    first = seen.waiting[0].frame if seen.waiting else None
    return Absent(
        rank=unable[0].rank if len(unable) == 1 else None,
        frame=unable[0].frame or first,
        symptom=Symptom.ABSENT if seen.waiting else Symptom.BUSY,
        away=tuple(unable),
        waiting=tuple(seen.waiting),
    )


def _apart(seen: Snapshot) -> Cause | None:
    """Some wait, and it is not known why they do not come together."""
    first, waiting = (
        seen.waiting[0].frame if seen.waiting else None,
        tuple(seen.waiting),
    )
    away = tuple(s for s in seen.stands if isinstance(s, ABSENT) and not s.watched)
    if waiting and away:
        return Apart(frame=first, waiting=waiting, away=away)
    if len(waiting) < len(seen.stands) and len({stand.name for stand in waiting}) == 1:
        return None  # who does not wait may be the one that they wait for
    cause = Apart(frame=first, symptom=Symptom.DIFFERENT_CALLS, waiting=waiting)
    if cause.unanswered:
        return replace(cause, symptom=Symptom.CYCLE)
    return cause if len(waiting) > 1 else None


# --- nobody waits for another ---


def _busy(seen: Snapshot) -> Cause | None:
    """No rank waits for another: each has something to do, or does not end."""
    busy = [s for s in seen.stands if isinstance(s, Elsewhere | Lingers)]
    if not busy or seen.waiting:
        return None
    alone = len(seen.stands) == 1  # it is the program
    stacks = [seen.logs[stand.rank].stack for stand in busy]
    remote = [RPC in f.file and f.name != "<module>" for f in chain(*stacks)]
    spawn = [any(f.file.endswith(SPAWN) for f in stack) for stack in stacks]
    nested = len(spawn) > 1 and all(spawn)  # each is the parent of ranks of its own
    return Busy(
        rank=busy[0].rank if len(busy) == 1 and not alone else None,
        frame=busy[0].frame,
        symptom=Symptom.WORLD_IN_A_WORLD if nested else Symptom.BUSY,
        stands=tuple(busy),
        remote=any(remote),
    )


# In which order causes are looked for. What explains what ranks do later comes first.
STEPS: tuple[Callable[[Snapshot], Cause | None], ...] = (
    _unable,  # whatever the others do follows from it
    _not_met,  # no call was made yet
    _groups_differ,  # new_group waits for all, and its calls are those of a store
    _calls_differ,  # from there on, what ranks wait for is chance
    _roots_differ,  # all have made the call: no one is away
    _circle,
    _absent,  # what is known of the peers: else whoever does not wait
    _apart,
    _busy,
)


# --- a job that is watched, in which some rank moves or cannot be seen ---


def _restless(seen: Snapshot) -> Cause:
    """Some rank moves, computes, or cannot be seen: what holds in any case, or who does
    what."""
    if not any(isinstance(stand, Unseen | Away) for stand in seen.stands):
        if cause := _circle(seen):
            return cause
    return does(seen.stands)


def does(stands: Sequence[Stand]) -> Does:
    """Return what each rank does, with the one that the others may be waiting for."""
    if {type(stand) for stand in stands} in ({Moves}, {Left}):
        return Does(stands=tuple(stands))
    waiting = [stand for stand in stands if stand.waits]
    of = [[s for s in stands if isinstance(s, kind)] for kind in MISSING]
    culprits = next(filter(None, of), [])
    first = (culprits or waiting or stands)[0]
    rank = culprits[0].rank if len(culprits) == 1 else None
    return Does(rank=rank, frame=first.frame, stands=tuple(stands))

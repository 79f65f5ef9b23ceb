"""Find out why a run stands still: who waits for whom, and who is elsewhere."""

import os
from dataclasses import replace

from ddp_lab.kit.explain import roots
from ddp_lab.kit.explain.cause import MEETING, Cause, Kind, Stand, odd_one
from ddp_lab.kit.explain.stands import (
    PEER_ARGUMENT,
    ROOT_ARGUMENT,
    RPC,
    WORK,
)
from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record.calls import Call, first_mismatch
from ddp_lab.kit.record.rank_log import RankLog
from ddp_lab.kit.record.stacks import Frame

# Where a rank waits in C++ for the gradients of the others, or computes its own.
BACKWARD = "torch/autograd/graph.py"
RESTLESS = {"moves", "busy", "unseen", "away"}  # of which nobody knows what comes next
# Whom the others may be waiting for, first those that will hardly come.
TOLD_FIRST = ("stopped", "left", "elsewhere", "busy", "moves")
OFTEN = 0.5  # of the looks
ALL_MEET = ("init_rpc", "shutdown")  # of the calls of torch's RPC
AWAY = ("elsewhere", "lingers", "left")  # where a rank is that does not come
QUOTES = "\"'"


def diagnose(logs: list[RankLog], stands: list[Stand]) -> Cause | None:
    """Return why the run stands still; None if what is known does not tell."""
    waiting = [stand for stand in stands if stand.state == "waits"]
    if RESTLESS & {stand.state for stand in stands}:
        return _restless(waiting, stands)
    if not waiting:
        return (
            _two_worlds(logs, stands)
            or _unable(waiting, stands)
            or _lingers(stands)
            or mismatch([log.calls for log in logs])
            or _busy(stands, logs)
        )
    return (
        _unable(waiting, stands)
        or cycle(waiting)
        or _other_source(waiting)
        or _groups(waiting, stands, logs)
        or mismatch([log.calls for log in logs])
        or roots.find(waiting, logs)
        or _absent(waiting, stands)
        or _apart(waiting)
        or _not_together(waiting, stands)
    )


def _restless(waiting: list[Stand], stands: list[Stand]) -> Cause | None:
    """Some rank moves, computes, or cannot be seen: what holds in any case, or who does
    what."""
    unknown = {"unseen", "away"} & {stand.state for stand in stands}
    found = None if unknown else cycle(waiting)
    return found or _all_move(stands) or does(stands)


def _all_move(stands: list[Stand]) -> Cause | None:
    """All ranks move; one may be the slowest, for which the others wait."""
    if any(stand.state != "moves" for stand in stands):
        return None
    never = [s for s in stands if s.watched and not s.watched.waited]
    others = [s.watched.waited for s in stands if s.watched and s.watched.waited]
    slowest = len(never) == 1 and others and min(others) >= OFTEN
    ranks = tuple(stand.rank for stand in stands)
    return Cause(Kind.ALL_MOVE, ranks=ranks, stands=tuple(never if slowest else ()))


def does(stands: list[Stand]) -> Cause:
    """Return what each rank does, with the one that the others may be waiting for."""
    if all(stand.state == "left" for stand in stands):
        return Cause(Kind.ENDED)
    waiting = [stand for stand in stands if stand.state == "waits"]
    of = [[s for s in stands if s.state == state] for state in TOLD_FIRST]
    culprits = next(filter(None, of), [])
    first = (culprits or waiting or stands)[0]
    rank = culprits[0].rank if len(culprits) == 1 else None
    return Cause(Kind.DOES, rank, first.frame, stands=tuple(stands))


def _two_worlds(logs: list[RankLog], stands: list[Stand]) -> Cause | None:
    """Every rank of torchrun has become the parent of ranks of its own."""
    spawn = os.path.join("torch", "multiprocessing", "spawn.py")
    parents = [
        any(f.name == "start_processes" and f.file.endswith(spawn) for f in log.stack)
        for log in logs
    ]
    if len(logs) < 2 or not all(parents):
        return None
    symptom, ranks = Symptom.WORLD_IN_A_WORLD, tuple(range(len(logs)))
    return Cause(Kind.WORLD_IN_A_WORLD, None, stands[0].frame, symptom, ranks=ranks)


def _groups(
    waiting: list[Stand], stands: list[Stand], logs: list[RankLog]
) -> Cause | None:
    """Some rank waits for the others to join a group, or to make one."""
    names = {stand.name for stand in waiting}
    if MEETING in names:
        if found := _joins_as_another(waiting, logs):
            return found  # ranks that it lets join may have left by now
        if names == {MEETING} and len(waiting) == len(logs):
            return _not_met(waiting, logs)
    if "new_group" not in names or any(s.state in AWAY for s in stands):
        return None
    groups = {s.rank: s.members for s in waiting if s.members}
    if len({*groups.values()}) > 1:  # then it is no matter of how many
        makers = tuple(stand for stand in waiting if stand.members)
        found = Cause(Kind.APART, None, makers[0].frame, Symptom.DIFFERENT_CALLS)
        return replace(found, waiting=makers)  # which one errs, earlier groups decide
    # Who has raised and left its groups has none to count.
    there = [stand for stand in waiting if logs[stand.rank].groups]
    made = {s.rank: len(logs[s.rank].groups) + (s.name == "new_group") for s in there}
    fewest = tuple(rank for rank in made if made[rank] == min(made.values()))
    if len(fewest) == len(made):
        return None
    first = next(stand for stand in waiting if stand.rank == fewest[0])
    rank = first.rank if len(fewest) == 1 else None
    return Cause(Kind.FEWER_GROUPS, rank, first.frame, Symptom.GROUPS, ranks=fewest)


def _joins_as_another(waiting: list[Stand], logs: list[RankLog]) -> Cause | None:
    """Some rank says that it is another one, or one of another number."""
    wrong: dict[int, tuple[list[str], tuple[str, ...]]] = {}
    for stand in waiting:
        log = logs[stand.rank]
        says = [_joins_as(log.stack, name) for name in ("rank", "world_size")]
        if all(says) and log.started_as and says != [*log.started_as]:
            wrong[stand.rank] = says, log.started_as
    if not wrong:
        return None
    first = next(stand for stand in waiting if stand.rank in wrong)
    rank = first.rank if len(wrong) == 1 else None
    places = tuple("rank {} of {}".format(*each) for each in wrong[first.rank])
    found = Cause(Kind.JOINS_AS_ANOTHER, rank, first.frame, Symptom.RENDEZVOUS)
    return replace(found, ranks=tuple(wrong), places=places, name=MEETING)


def _joins_as(stack: list[Frame], name: str) -> str:
    """Return the rank, or the world size, with which a rank looks for the others."""
    told = (frame.values.get(name, "") for frame in stack if not frame.own)
    return next(filter(str.isdecimal, told), "")


def _not_met(waiting: list[Stand], logs: list[RankLog]) -> Cause:
    """No rank finds the others: they look at different places, or in an old file."""
    found = Cause(
        Kind.NOT_MET, None, waiting[0].frame, Symptom.RENDEZVOUS, name=MEETING
    )
    all_frames = [frame for log in logs for frame in log.stack]
    for method in filter(None, (f.values.get("init_method") for f in all_frames)):
        if "file://" in method:
            return replace(found, kind=Kind.OLD_FILE, places=(method.strip(QUOTES),))
    told = [logs[stand.rank].meets for stand in waiting]
    moved = [s for s, meets in zip(waiting, told, strict=True) if len({*meets}) > 1]
    if not moved:
        return found
    should, looks = logs[moved[0].rank].meets[0], logs[moved[0].rank].meets[-1]
    if len(moved) == len(waiting) or not all(told):
        return replace(found, kind=Kind.NOBODY_LISTENS, places=(looks,))
    ranks = tuple(stand.rank for stand in moved)
    found = replace(
        found, kind=Kind.MEETS_ELSEWHERE, ranks=ranks, places=(looks, should)
    )
    if len(moved) == 1:
        found = replace(found, rank=moved[0].rank, frame=moved[0].frame)
    return found


def _unable(waiting: list[Stand], stands: list[Stand]) -> Cause | None:
    """Some rank was halted by a signal, or ended early: no one else has to be odd."""
    unable = [s for s in stands if s.state == "stopped" or s.end and s.state == "left"]
    if not unable:
        return None
    return Cause(
        Kind.UNABLE,
        unable[0].rank if len(unable) == 1 else None,
        unable[0].frame or (waiting[0].frame if waiting else None),
        Symptom.ABSENT if waiting else Symptom.BUSY,
        stands=tuple(unable),
        waiting=tuple(waiting),
    )


def _lingers(stands: list[Stand]) -> Cause | None:
    """Some rank has done its main program, and does not end."""
    late = tuple(stand for stand in stands if stand.state == "lingers")
    if not late:
        return None
    rank = late[0].rank if len(late) == 1 else None
    return Cause(Kind.LINGERS, rank, late[0].frame, Symptom.BUSY, stands=late)


def _busy(stands: list[Stand], logs: list[RankLog]) -> Cause | None:
    """No rank waits for another: each has something of its own to do."""
    busy = [stand for stand in stands if stand.state == "elsewhere"]
    if not busy:
        return None
    if away := _without_gradients(busy, logs):
        rest = tuple(stand for stand in busy if stand is not away)
        found = Cause(Kind.NO_GRADIENTS, away.rank, away.frame, Symptom.ABSENT)
        return replace(found, stands=(away,), waiting=rest)
    rank = busy[0].rank if len(busy) == 1 else None
    others = ""
    inside = {s.rank: logs[s.rank].stack for s in busy}
    calls = {
        rank: [f.name for f in stack if RPC in f.file and f.name != "<module>"]
        for rank, stack in inside.items()
    }
    if any(calls.values()):
        others = "rpc"
    meet = {r: name for r, names in calls.items() for name in ALL_MEET if name in names}
    there = [replace(s, name=meet[s.rank]) for s in busy if s.rank in meet]
    elsewhere = [stand for stand in stands if stand.rank not in meet]
    if there and not any(calls.get(stand.rank) for stand in elsewhere):
        if absent := _absent(there, elsewhere):
            return absent
    if rank is not None and all(s is busy[0] or s.state == "left" for s in stands):
        others = "left"
    if len(stands) == 1:  # it is the program
        rank, others = None, "program"
    found = Cause(Kind.BUSY, rank, busy[0].frame, Symptom.BUSY, name=others)
    return replace(found, stands=tuple(busy))


def _without_gradients(busy: list[Stand], logs: list[RankLog]) -> Stand | None:
    """Return the one rank that is elsewhere while all others wait for gradients."""
    first = {s.rank: logs[s.rank].stack[:1] for s in busy}
    away = [s for s in busy if not any(BACKWARD in f.file for f in first[s.rank])]
    return away[0] if len(away) == 1 < len(busy) else None


def cycle(waiting: list[Stand]) -> Cause | None:
    """Follow who waits for whom by send and recv until a rank comes up again."""
    stands = {s.rank: s for s in waiting if s.name in PEER_ARGUMENT and s.peers}
    for start in stands.values():
        path = [start]
        while (peer := path[-1].peers[0]) in stands and stands[peer] not in path:
            path.append(stands[peer])
        if peer != start.rank:
            continue
        kind, symptom = Kind.CYCLE, Symptom.CYCLE
        if len(path) == 2 and {s.name for s in path} == {"send", "recv"}:
            kind, symptom = Kind.PAIR, Symptom.BUSY  # they mean each other
            if path[0].tag != path[1].tag:
                kind, symptom = Kind.OTHER_TAG, Symptom.DIFFERENT_CALLS
        return Cause(kind, None, start.frame, symptom, stands=tuple(path))
    return None


def _other_source(waiting: list[Stand]) -> Cause | None:
    """A rank receives from one rank while another one sends to it."""
    sends = [stand for stand in waiting if stand.name == "send" and stand.peers]
    for stand in waiting:
        senders = tuple(each for each in sends if each.peers[0] == stand.rank)
        if stand.name == "recv" and stand.peers and senders:
            if stand.peers[0] not in [each.rank for each in senders]:
                symptom = Symptom.DIFFERENT_CALLS
                found = Cause(Kind.OTHER_SOURCE, stand.rank, stand.frame, symptom)
                return replace(found, stands=(stand,), waiting=senders)
    return None


def mismatch(calls: list[list[Call]], too_small: int | None = None) -> Cause | None:
    """Return which call was not the same on all ranks, and what each rank did instead.

    Args:
        calls: of each rank.
        too_small: a rank without a record that got more than its tensor has room for.
    """
    by_rank = first_mismatch(calls)
    if not by_rank:
        return None
    votes = {rank: str(call) for rank, call in by_rank.items()}
    if too_small is not None and too_small not in votes:
        votes[too_small] = str(min(by_rank.values(), key=lambda call: call.size))
    rank = odd_one(votes)
    frame = by_rank[rank if rank is not None else min(by_rank)].frame
    same = len({call.does for call in by_rank.values()}) == 1
    symptom = Symptom.DIFFERENT_TENSORS if same else Symptom.DIFFERENT_CALLS
    found = Cause(Kind.CALLS_DIFFER, rank, frame, symptom, calls=by_rank)
    return replace(found, of=_called_elsewhere(calls, by_rank, rank))


def _called_elsewhere(
    calls: list[list[Call]], differ: dict[int, Call], rank: int | None
) -> Cause | None:
    """Return the first call that `rank` alone has made at another line.

    The calls of a rank that has made one too many look like those of the others until
    they differ.
    """
    group, backend, until = next(iter(differ.values())).key
    for number in range(1, until):
        made = {
            r: call
            for r, its_calls in enumerate(calls)
            for call in its_calls
            if call.key == (group, backend, number) and call.frame and not call.p2p
        }
        lines = {r: call.frame.short for r, call in made.items() if call.frame}
        if rank is not None and odd_one(lines) == rank and len(lines) > 2:
            return Cause(Kind.CALLED_ELSEWHERE, rank, made[rank].frame, calls=made)
    return None


def without_record(logs: list[RankLog]) -> tuple[int | None, str]:
    """Return the one rank that has left no record, where all others made one call.

    gloo aborts a rank that gets more than its tensor has room for.
    """
    silent = [rank for rank, log in enumerate(logs) if not log.calls]
    last = {str(log.calls[-1]): log.calls[-1].name for log in logs if log.calls}
    if len(silent) != 1 or len(last) != 1 or len(logs) < 3:
        return None, ""
    return silent[0], next(iter(last.values()))


def _absent(waiting: list[Stand], stands: list[Stand]) -> Cause | None:
    """Name the ranks that have not come to where the others wait for them."""
    absent = [stand for stand in stands if stand.state in AWAY]
    wanted = {peer for stand in waiting for peer in stand.peers}
    absent = [s for s in absent if s.rank in wanted] or absent
    if not absent and {stand.peers for stand in waiting} == {tuple(wanted)[:1]}:
        # All wait for one rank, be its stack unreadable: it may be another program.
        absent = [s for s in stands if s.rank in wanted and s.state == "unknown"]
    others = not wanted and any(stand.given for stand in waiting)
    if not absent or others and len(absent) > 1:  # some may be no members
        return None
    together = len({stand.frame and stand.frame.short for stand in absent}) == 1
    first, one = waiting[0], absent[0].rank if len(absent) == 1 else None
    left = absent[0].state == "left"  # else it is at some line, and not at theirs
    frame = absent[0].frame or (first.frame if left else None)
    found = Cause(Kind.ABSENT, one, frame, Symptom.ABSENT)
    if len(waiting) == 1 and len(absent) > 1 and together:
        found = Cause(Kind.ALONE, first.rank, first.frame, Symptom.ABSENT)
    return replace(found, stands=tuple(absent), waiting=tuple(waiting))


def _apart(waiting: list[Stand]) -> Cause | None:
    """All wait, but not in the same communication."""
    calls = [stand.call for stand in waiting if stand.call]
    known = len(calls) == len(waiting)  # else nothing can be said of their groups
    groups = {
        s.rank: (s.name, s.call.group if s.call and known else "") for s in waiting
    }
    if len(set(groups.values())) == 1:
        return _nobody_sends(waiting) or _lines_apart(waiting, known)
    rank = odd_one(groups)
    recorded = {stand.rank for stand in waiting if stand.call}
    if rank is not None and rank not in recorded:
        if groups[rank][0] in (*ROOT_ARGUMENT, WORK):
            rank = None  # it may not wait for all, so others may be ahead
    first = next((s for s in waiting if s.rank == rank), waiting[0])
    found = Cause(Kind.APART, rank, first.frame, Symptom.DIFFERENT_CALLS)
    return replace(found, waiting=tuple(waiting))


def _lines_apart(waiting: list[Stand], known: bool) -> Cause | None:
    """All wait in one call, of which there is no record, but not at the same line."""
    rank = odd_one({s.rank: s.frame.short for s in waiting if s.frame})
    if known or rank is None:
        return None
    odd = next(stand for stand in waiting if stand.rank == rank)
    rest = tuple(stand for stand in waiting if stand is not odd)
    found = Cause(Kind.LINES_APART, rank, odd.frame, Symptom.DIFFERENT_CALLS)
    return replace(found, stands=(odd,), waiting=rest)


def _nobody_sends(waiting: list[Stand]) -> Cause | None:
    first = waiting[0]
    if first.call or first.name not in (*PEER_ARGUMENT, WORK):
        return None
    found = Cause(Kind.NOBODY_SENDS, None, first.frame, Symptom.CYCLE)
    return replace(found, waiting=tuple(waiting))


def _not_together(waiting: list[Stand], stands: list[Stand]) -> Cause | None:
    """All ranks wait in calls of one name, and yet they do not come together."""
    if len(waiting) < len(stands) or len(stands) < 2:
        return None
    symptom = Symptom.DIFFERENT_CALLS
    found = Cause(Kind.NOT_TOGETHER, None, waiting[0].frame, symptom)
    return replace(found, waiting=tuple(waiting))

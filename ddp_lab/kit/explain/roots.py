"""Find out which rank means another src or dst than the others, of those that wait."""

from dataclasses import replace

from ddp_lab.kit.explain.cause import Cause, Kind, Stand, odd_one
from ddp_lab.kit.explain.stands import ROOT_ARGUMENT
from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record.calls import Call
from ddp_lab.kit.record.rank_log import RankLog


def find(waiting: list[Stand], logs: list[RankLog]) -> Cause | None:
    """Some wait in one collective, but not all of them mean the same src or dst."""
    rooted = [stand for stand in waiting if stand.name in ROOT_ARGUMENT]
    if not rooted:
        return None
    same = [stand for stand in rooted if _together(stand, rooted[0])]
    roots = {s.rank: s.root for s in same if s.root is not None}
    if not roots:
        return _passed_by(same, logs)
    if len(set(roots.values())) < 2:
        return None
    odd = _wrong_root(same, roots, logs)
    first = next((s for s in same if s.rank == odd), same[0])
    found = Cause(Kind.ROOTS_DIFFER, odd, first.frame, Symptom.DIFFERENT_CALLS)
    known = tuple(stand for stand in same if stand.rank in roots)
    return replace(found, name=ROOT_ARGUMENT[first.name][0], stands=known)


def _passed_by(same: list[Stand], logs: list[RankLog]) -> Cause | None:
    """Every rank has made the call, of which no src or dst is known, and some wait."""
    passed = [rank for rank, call in _passed(same, logs).items() if call.done]
    if not passed or len(passed) + len(same) < len(logs):
        return None
    found = Cause(Kind.PASSED_BY, None, same[0].frame, Symptom.DIFFERENT_CALLS)
    found = replace(found, name=ROOT_ARGUMENT[same[0].name][0], ranks=tuple(passed))
    return replace(found, waiting=tuple(same))


def _together(one: Stand, other: Stand) -> bool:
    """Tell whether two ranks wait in the same call."""
    if one.name != other.name or not (one.call and other.call):
        return one.name == other.name and one.call == other.call
    if one.call.group != other.call.group:
        return False
    # A call for objects makes two, of their sizes and of their data.
    apart = abs(one.call.number - other.call.number)
    return apart <= ("object" in one.name)


def _wrong_root(
    same: list[Stand], roots: dict[int, int], logs: list[RankLog]
) -> int | None:
    """Return the one rank that means a wrong root; None if that cannot be told.

    Whoever has passed the call cannot have been the root of those that still wait in
    it. (Of a broadcast to more than two that is not sure: others pass it on.)
    """
    passed = _passed(same, logs)
    call = same[0].call
    direct = (call.does if call else same[0].name) != "broadcast" or len(logs) <= 3
    wrong = {
        root
        for root in roots.values()
        if roots.get(root, root) != root or (direct and root in passed)
    }
    if len({*roots.values()} - wrong) == 1:
        odd = [rank for rank, root in roots.items() if root in wrong]
        return odd[0] if len(odd) == 1 else None
    # Whoever made the call at the same line as others probably means what they mean.
    meant: dict[str, set[int]] = {}
    for stand in same:
        place = stand.frame.short if stand.frame else ""
        meant.setdefault(place, set()).add(roots[stand.rank])
    votes = dict(roots)
    for rank, call in passed.items():
        if call.frame and len(told := meant.get(call.frame.short, set())) == 1:
            votes[rank] = min(told)
    return odd_one(votes)


def _passed(same: list[Stand], logs: list[RankLog]) -> dict[int, Call]:
    """Return the ranks that have done the call that others still wait in."""
    key, inside = same[0].call and same[0].call.key, [stand.rank for stand in same]
    return {
        rank: call
        for rank, log in enumerate(logs)
        for call in log.calls
        if (call.name, call.key) == (same[0].name, key) and rank not in inside
    }

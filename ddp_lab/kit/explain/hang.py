"""Say why a run stands still: who waits for whom, and who is elsewhere."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ddp_lab.kit.explain.calls import Call, first_mismatch
from ddp_lab.kit.explain.logs import RankLog
from ddp_lab.kit.explain.stacks import C10D, Frame, own
from ddp_lab.kit.explain.symptoms import Symptom

# What a rank says when another one has gone.
LOST_PEER = re.compile(
    r"Connection (closed|reset) by peer|connectFullMesh failed|Broken pipe"
    r"|remote process exited|NCCL communicator was aborted|recvValue failed"
    r"|failed to recv, got 0 bytes|Connection was likely closed|Socket closed"
)
# What a rank says when it has waited too long, or got what it had not asked for.
OUT_OF_STEP = re.compile(
    r"Timed out waiting \d+ms|Watchdog caught collective|monitoredBarrier"
    r"|op\.preamble\.length|wait timeout after|Detected mismatch between collectives"
)
# The arguments in which a call names one rank: as in the whole world, or in the group.
DST, SRC = ("dst", "group_dst"), ("src", "group_src")
PEER_ARGUMENT = {"send": DST, "recv": SRC}
ROOT_ARGUMENT = {"broadcast": SRC, "scatter": SRC, "reduce": DST, "gather": DST}


@dataclass(frozen=True)
class Stand:
    """Where one rank stood."""

    rank: int
    state: str
    """"waits" in a communication, "elsewhere", "left" (ended without an error), or
    "unknown"."""
    frame: Frame | None = None
    """The program's own line."""
    name: str = ""
    """The function that it waits in, such as `all_reduce` or `send`."""
    call: Call | None = None
    """The same as the flight recorder has it; it knows no send and recv of gloo."""
    peers: tuple[int, ...] = ()
    """The ranks that it waits for, as far as that is known."""
    root: int | None = None
    """The src or dst of a collective that has one."""

    def __str__(self) -> str:
        """Return, say, `waits in send for rank 1 at sick.py:45 in ...`."""
        at = f" at {self.frame.place}" if self.frame else ""
        if self.state == "waits":
            peers = f" for {ranks(self.peers)}" if self.peers else ""
            return f"waits in {self.call or self.name}{peers}{at}"
        if self.state == "left":
            return "has left"
        return f"stands{at}" if at else "left no word of where it stands"


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a standstill."""

    symptom: Symptom
    cause: str
    rank: int | None = None
    """The one whose behaviour differs from the others'; None if no one's does."""
    frame: Frame | None = None


def find_stands(logs: list[RankLog]) -> list[Stand]:
    """Return where each rank stood when it was last seen."""
    stands = [_stand(rank, log) for rank, log in enumerate(logs)]
    return [_with_peers(stand, logs) for stand in stands]


def _stand(rank: int, log: RankLog) -> Stand:
    if log.finished:
        return Stand(rank, "left")
    frame, undone = own(log.stack), [call for call in log.calls if not call.done]
    gave_up = LOST_PEER.search(log.traceback) or OUT_OF_STEP.search(log.traceback)
    if gave_up:  # the recorder takes a call that has failed for done
        undone = undone or log.calls[-1:]
    inside = _communication(log.stack)
    if inside:
        calls = [call for call in undone if call.name == inside.name]
        call = calls[-1] if calls else None
        peer, root = _named(inside, PEER_ARGUMENT), _named(inside, ROOT_ARGUMENT)
        peers = () if peer is None else (peer,)
        return Stand(rank, "waits", frame, inside.name, call, peers, root)
    in_library = bool(log.stack) and not log.stack[0].own
    on_work = frame is not None and ".wait(" in frame.code
    if undone and (in_library or on_work) or on_work:
        call = undone[0] if undone else None
        return Stand(rank, "waits", frame, call.name if call else "wait", call)
    return Stand(rank, "elsewhere" if frame else "unknown", frame)


def _communication(stack: list[Frame]) -> Frame | None:
    """Return the function of torch.distributed that the program has called."""
    found = None
    for frame in stack:
        if frame.own:
            break
        if frame.file.endswith(C10D):
            found = frame
    return found


def _named(frame: Frame, arguments: dict[str, tuple[str, str]]) -> int | None:
    """Return the rank that a call names; its local variables tell."""
    for name in arguments.get(frame.name, ()):
        if frame.values.get(name, "").isdecimal():
            return int(frame.values[name])
    return None


def _with_peers(stand: Stand, logs: list[RankLog]) -> Stand:
    """Add to a rank that waits in a collective who has not made this call yet."""
    if stand.call is None or stand.call.p2p:
        return stand
    members = logs[stand.rank].groups.get(stand.call.group, range(len(logs)))
    made = [{call.key for call in log.calls} for log in logs]
    absent = [r for r in members if r < len(logs) and stand.call.key not in made[r]]
    return replace(stand, peers=tuple(absent))


def diagnose(logs: list[RankLog], stands: list[Stand]) -> Diagnosis | None:
    """Return why the run stands still; None if what is known does not tell."""
    waiting = [stand for stand in stands if stand.state == "waits"]
    if not waiting:
        return _two_worlds(logs, stands) or _busy(stands)
    return (
        _cycle(waiting)
        or _groups(waiting, logs)
        or mismatch([log.calls for log in logs])
        or _absent(waiting, stands)
        or _apart(waiting)
    )


def _two_worlds(logs: list[RankLog], stands: list[Stand]) -> Diagnosis | None:
    """Every rank of torchrun has become the parent of ranks of its own."""
    spawn = os.path.join("multiprocessing", "spawn.py")
    parents = [any(f.file.endswith(spawn) for f in log.stack) for log in logs]
    if len(logs) < 2 or not all(parents):
        return None
    cause = f"each of the {len(logs)} ranks of torchrun starts ranks of its own"
    return Diagnosis(Symptom.WORLD_IN_A_WORLD, cause, None, stands[0].frame)


def _groups(waiting: list[Stand], logs: list[RankLog]) -> Diagnosis | None:
    """Some rank waits for the others to join a group, or to make one."""
    names = {stand.name for stand in waiting}
    if names == {"init_process_group"} and len(waiting) == len(logs):
        cause = "every rank waits in init_process_group, and does not find the others"
        return Diagnosis(Symptom.RENDEZVOUS, cause, None, waiting[0].frame)
    if "new_group" not in names:
        return None
    # Who has raised and left its groups has none to count.
    there = [stand for stand in waiting if logs[stand.rank].groups]
    made = {s.rank: len(logs[s.rank].groups) + (s.name == "new_group") for s in there}
    fewest = [rank for rank in made if made[rank] == min(made.values())]
    if len(fewest) == len(made):
        return None
    has = "has" if len(fewest) == 1 else "have"
    cause = f"every rank has to call new_group for every group, but {ranks(fewest)} "
    cause += f"{has} called it less often than the others"
    first = next(stand for stand in waiting if stand.rank == fewest[0])
    rank = first.rank if len(fewest) == 1 else None
    return Diagnosis(Symptom.GROUPS, cause, rank, first.frame)


def _busy(stands: list[Stand]) -> Diagnosis | None:
    busy = [stand for stand in stands if stand.state == "elsewhere"]
    if not busy:
        return None
    where = f"{busy[0].frame.short}" if busy[0].frame else "its own line"
    who = ranks([stand.rank for stand in busy])
    verb = "stands" if len(busy) == 1 else "stand"
    rank = busy[0].rank if len(busy) == 1 else None
    cause = f"{who} {verb} at {where}, and no rank waits for another"
    return Diagnosis(Symptom.BUSY, cause, rank, busy[0].frame)


def _cycle(waiting: list[Stand]) -> Diagnosis | None:
    """Follow who waits for whom by send and recv until a rank comes up again."""
    stands = {s.rank: s for s in waiting if s.name in ("send", "recv") and s.peers}
    for start in stands.values():
        path = [start]
        while (peer := path[-1].peers[0]) in stands and stands[peer] not in path:
            path.append(stands[peer])
        if peer == start.rank:
            steps = [
                f"rank {s.rank} waits in {s.name} for rank {s.peers[0]}" for s in path
            ]
            return Diagnosis(Symptom.CYCLE, ", ".join(steps), None, start.frame)
    return None


def mismatch(calls: list[list[Call]]) -> Diagnosis | None:
    """Say which call was not the same on all ranks, and what each rank did instead."""
    by_rank = first_mismatch(calls)
    if not by_rank:
        return None
    texts = {rank: str(call) for rank, call in by_rank.items()}
    rank = _odd_one(texts)
    call = by_rank[rank if rank is not None else min(by_rank)]
    same = len({call.does for call in by_rank.values()}) == 1
    symptom = Symptom.DIFFERENT_TENSORS if same else Symptom.DIFFERENT_CALLS
    sides = [
        f"{text}{_at(next(c for r, c in by_rank.items() if texts[r] == text))}"
        f" on {ranks([r for r in texts if texts[r] == text])}"
        for text in dict.fromkeys(texts.values())
    ]
    cause = f"call {call.number} is {', but '.join(sides)}"
    return Diagnosis(symptom, cause, rank, call.frame)


def _at(call: Call) -> str:
    return f" at {call.frame.short}" if call.frame else ""


def _absent(waiting: list[Stand], stands: list[Stand]) -> Diagnosis | None:
    """Name the ranks that have not come to where the others wait for them."""
    absent = [stand for stand in stands if stand.state in ("elsewhere", "left")]
    wanted = {peer for stand in waiting for peer in stand.peers}
    absent = [s for s in absent if s.rank in wanted] or absent
    if not absent:
        return None
    first, missing = waiting[0], ranks([stand.rank for stand in absent])
    verb = "waits" if len(waiting) == 1 else "wait"
    has = "has" if len(absent) == 1 else "have"
    did = "left" if all(stand.state == "left" for stand in absent) else "not come"
    if len(waiting) == 1 and len(absent) > 1:
        cause = f"waits in {first.name}, but {missing} {has} {did}"
        return Diagnosis(Symptom.ABSENT, cause, first.rank, first.frame)
    who = ranks([stand.rank for stand in waiting])
    cause = f"{has} {did}, and {who} {verb} in {first.name}"
    frame = absent[0].frame or first.frame
    if len(absent) == 1:
        return Diagnosis(Symptom.ABSENT, cause, absent[0].rank, frame)
    return Diagnosis(Symptom.ABSENT, f"{missing} {cause}", None, frame)


def _apart(waiting: list[Stand]) -> Diagnosis | None:
    """All wait, but not in the same communication."""
    calls = [stand.call for stand in waiting if stand.call]
    known = len(calls) == len(waiting)  # else nothing can be said of their groups
    groups = {
        s.rank: (s.name, s.call.group if s.call and known else "") for s in waiting
    }
    if len(set(groups.values())) == 1:
        return _nobody_sends(waiting) or _roots(waiting)
    rank = _odd_one(groups)
    first = next((s for s in waiting if s.rank == rank), waiting[0])
    where = [
        f"{ranks([s.rank for s in waiting if groups[s.rank] == group])} in {group[0]}"
        + (f" of group {group[1]}" if len({g[0] for g in groups.values()}) == 1 else "")
        for group in dict.fromkeys(groups.values())
    ]
    cause = "the ranks wait in different calls: " + ", ".join(where)
    return Diagnosis(Symptom.DIFFERENT_CALLS, cause, rank, first.frame)


def _nobody_sends(waiting: list[Stand]) -> Diagnosis | None:
    first = waiting[0]
    if first.call or first.name not in ("send", "recv", "wait"):
        return None
    cause = f"every rank waits in {first.name}, so nobody answers"
    return Diagnosis(Symptom.CYCLE, cause, None, first.frame)


def _roots(waiting: list[Stand]) -> Diagnosis | None:
    """All wait in one collective, but not all mean the same src or dst."""
    roots = {s.rank: s.root for s in waiting}
    if None in roots.values() or len(set(roots.values())) == 1:
        return None
    rank, name = _odd_one(roots), waiting[0].name
    first = next((s for s in waiting if s.rank == rank), waiting[0])
    sides = [
        f"{root} on {ranks([r for r in roots if roots[r] == root])}"
        for root in dict.fromkeys(roots.values())
    ]
    cause = f"the ranks wait in {name} with different {ROOT_ARGUMENT[name][0]}: "
    cause += ", ".join(sides)
    return Diagnosis(Symptom.DIFFERENT_CALLS, cause, rank, first.frame)


def _odd_one(of_rank: Mapping[int, object]) -> int | None:
    """Return the rank that differs from all others, if there is exactly one."""
    counts = Counter(of_rank.values())
    odd = [rank for rank, what in of_rank.items() if counts[what] == 1]
    return odd[0] if len(counts) == 2 and len(odd) == 1 else None


def ranks(numbers: Iterable[int]) -> str:
    """Return `rank 1` or `ranks 0, 2 and 3`."""
    names = [str(number) for number in numbers]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"

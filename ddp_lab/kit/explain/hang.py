"""Say why a run stands still: who waits for whom, and who is elsewhere."""

import os

from ddp_lab.kit.explain import roots
from ddp_lab.kit.explain.diagnosis import Diagnosis, odd_one
from ddp_lab.kit.explain.stands import (
    PEER_ARGUMENT,
    ROOT_ARGUMENT,
    Stand,
    beside,
    find_stands,
    ranks,
)
from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record.calls import Call, first_mismatch
from ddp_lab.kit.record.rank_log import PROGRAM, RankLog
from ddp_lab.kit.record.stacks import Frame, own
from ddp_lab.kit.record.words import conjugate

__all__ = ["Diagnosis", "Stand", "find_stands", "ranks"]

RPC = "torch/distributed/rpc/"
# Where a rank waits in C++ for the gradients of the others.
GRADIENTS = ("torch/nn/parallel/distributed.py", "torch/autograd/graph.py")
AWAY = ("elsewhere", "lingers", "left")  # where a rank is that does not come
QUOTES = "\"'"


def diagnose(logs: list[RankLog], stands: list[Stand]) -> Diagnosis | None:
    """Return why the run stands still; None if what is known does not tell."""
    waiting = [stand for stand in stands if stand.state == "waits"]
    if not waiting:
        return (
            _two_worlds(logs, stands)
            or _unable(waiting, stands, _program(logs))
            or _lingers(stands)
            or _busy(stands, logs)
            or _left_alone(logs, stands)
        )
    return (
        _unable(waiting, stands, _program(logs))
        or _cycle(waiting)
        or _other_source(waiting)
        or _groups(waiting, logs)
        or mismatch([log.calls for log in logs])
        or roots.find(waiting, logs)
        or _absent(waiting, stands)
        or _apart(waiting)
    )


def _two_worlds(logs: list[RankLog], stands: list[Stand]) -> Diagnosis | None:
    """Every rank of torchrun has become the parent of ranks of its own."""
    spawn = os.path.join("torch", "multiprocessing", "spawn.py")
    parents = [
        any(f.name == "start_processes" and f.file.endswith(spawn) for f in log.stack)
        for log in logs
    ]
    if len(logs) < 2 or not all(parents):
        return None
    cause = f"each of the {len(logs)} ranks of torchrun starts ranks of its own"
    return Diagnosis(Symptom.WORLD_IN_A_WORLD, cause, None, stands[0].frame)


def _groups(waiting: list[Stand], logs: list[RankLog]) -> Diagnosis | None:
    """Some rank waits for the others to join a group, or to make one."""
    names = {stand.name for stand in waiting}
    if names == {"init_process_group"} and len(waiting) == len(logs):
        return _not_met(waiting, logs)
    if "new_group" not in names:
        return None
    # Who has raised and left its groups has none to count.
    there = [stand for stand in waiting if logs[stand.rank].groups]
    made = {s.rank: len(logs[s.rank].groups) + (s.name == "new_group") for s in there}
    fewest = [rank for rank in made if made[rank] == min(made.values())]
    if len(fewest) == len(made):
        return None
    cause = f"every rank has to call new_group for every group, but {ranks(fewest)} "
    cause += f"{conjugate('have', fewest)} called it less often than the others"
    first = next(stand for stand in waiting if stand.rank == fewest[0])
    rank = first.rank if len(fewest) == 1 else None
    return Diagnosis(Symptom.GROUPS, cause, rank, first.frame)


def _not_met(waiting: list[Stand], logs: list[RankLog]) -> Diagnosis:
    """No rank finds the others: they look at different places, or in an old file."""
    all_frames = [frame for log in logs for frame in log.stack]
    for method in filter(None, (f.values.get("init_method") for f in all_frames)):
        if "file://" in method:
            cause = f"the ranks do not meet in {method.strip(QUOTES)}, which has to be "
            cause += "a new file for each run"
            return Diagnosis(Symptom.RENDEZVOUS, cause, None, waiting[0].frame)
    cause = "every rank waits in init_process_group, and does not find the others"
    told = [logs[stand.rank].meets for stand in waiting]
    moved = [s for s, meets in zip(waiting, told, strict=True) if len({*meets}) > 1]
    if moved and len(moved) < len(waiting) and all(told):
        verb = conjugate("look", moved)
        cause = f"{verb} for the others at {logs[moved[0].rank].meets[-1]}, but "
        cause += f"torchrun has told them to meet at {told[moved[0].rank][0]}"
        if len(moved) == 1:
            return Diagnosis(Symptom.RENDEZVOUS, cause, moved[0].rank, moved[0].frame)
        cause = f"{ranks([s.rank for s in moved])} {cause}"
    elif moved:
        place = told[moved[0].rank][-1]
        cause += f": nobody listens at {place}, which the program has "
        cause += "set. Under torchrun rank 0 opens no store of its own, unless "
        cause += "TORCHELASTIC_USE_AGENT_STORE is False"
    return Diagnosis(Symptom.RENDEZVOUS, cause, None, waiting[0].frame)


def _unable(
    waiting: list[Stand], stands: list[Stand], program: Frame | None
) -> Diagnosis | None:
    """Some rank was halted by a signal, or ended early: no one else has to be odd."""
    unable = [s for s in stands if s.state == "stopped" or s.end and s.state == "left"]
    if not unable:
        return None
    how = {s.rank: s.end or "is stopped (SIGSTOP)" for s in unable}
    cause = how[unable[0].rank]
    if len(unable) > 1:
        cause = ", ".join(f"rank {rank} {what}" for rank, what in how.items())
    if waiting:
        who, verb = ranks([s.rank for s in waiting]), conjugate("wait", waiting)
        cause += f", and {who} {verb} in {waiting[0].name}"
    elif program and all(stand.state == "left" for stand in stands):
        cause += f", and {PROGRAM} stands at {program.short}"
    rank = unable[0].rank if len(unable) == 1 else None
    frame = unable[0].frame or (waiting[0].frame if waiting else program)
    symptom = Symptom.ABSENT if waiting else Symptom.BUSY
    return Diagnosis(symptom, cause, rank, frame)


def _lingers(stands: list[Stand]) -> Diagnosis | None:
    """Some rank has done its main program, and does not end."""
    late = [stand for stand in stands if stand.state == "lingers"]
    if not late:
        return None
    told = [f"{s.name} at {s.frame.short}" if s.frame else s.name for s in late]
    if len(late) == 1:
        cause = f"{late[0].end or 'has ended'} its main program, but {told[0]}"
        return Diagnosis(Symptom.BUSY, cause, late[0].rank, late[0].frame)
    cause = f"{ranks([s.rank for s in late])} have ended their main program, but "
    cause += told[0]
    if len({*told}) > 1:
        sides = [f"{t} on rank {s.rank}" for s, t in zip(late, told, strict=True)]
        cause = f"the ranks have ended their main program, but {', '.join(sides)}"
    return Diagnosis(Symptom.BUSY, cause, None, late[0].frame)


def _left_alone(logs: list[RankLog], stands: list[Stand]) -> Diagnosis | None:
    """No rank is to be seen; the program that has started them stands still."""
    program = _program(logs)
    if not program or any(stand.state not in ("left", "unknown") for stand in stands):
        return None
    left = all(stand.state == "left" for stand in stands)
    cause = "all ranks have left, and " if left else ""
    cause += "; ".join([program_stands(logs), *beside(logs[0])])
    return Diagnosis(Symptom.BUSY, cause, None, program)


def program_stands(logs: list[RankLog]) -> str:
    """Return where the program stands that has started the ranks, if it did."""
    program = _program(logs)
    return f"{PROGRAM} stands at {program.short}" if program else ""


def has_program(logs: list[RankLog]) -> bool:
    """Tell whether a program has started the ranks, and they share its output."""
    return bool(logs) and PROGRAM in logs[0].beside


def _program(logs: list[RankLog]) -> Frame | None:
    """Return where the program stands that has started the ranks."""
    return own(logs[0].beside.get(PROGRAM, [])) if logs else None


def _busy(stands: list[Stand], logs: list[RankLog]) -> Diagnosis | None:
    """No rank waits for another: each has something of its own to do."""
    busy = [stand for stand in stands if stand.state == "elsewhere"]
    if not busy:
        return None
    places: dict[str, list[int]] = {}
    for stand in busy:
        places.setdefault(_place(stand), []).append(stand.rank)
    told = [
        f"{ranks(which)} {conjugate('stand', which)} at {place}"
        for place, which in places.items()
    ]
    rank, others = None, "no rank waits for another"
    if any(RPC in frame.file for stand in busy for frame in logs[stand.rank].stack):
        others = "of remote calls nobody records who waits for whom"
    if away := _without_gradients(busy, logs):
        rest = [stand for stand in busy if stand is not away]
        cause = f"stands at {_place(away)}, and {ranks(s.rank for s in rest)} "
        cause += f"{conjugate('wait', rest)} for its gradients"
        return Diagnosis(Symptom.ABSENT, cause, away.rank, away.frame)
    if len(busy) == 1:
        rank, told = busy[0].rank, [f"stands at {place}" for place in places]
        if all(stand is busy[0] or stand.state == "left" for stand in stands):
            others = "the others have left"
    cause = f"{', '.join(told)}, and {others}"
    if len(stands) == 1:
        cause = told[0]
    if len(stands) == 1 and PROGRAM not in logs[0].beside:  # it is the program
        rank, cause = None, f"the program {told[0]}"
    return Diagnosis(Symptom.BUSY, cause, rank, busy[0].frame)


def _place(stand: Stand) -> str:
    where = stand.frame.short if stand.frame else "its own line"
    return "; ".join([where, *stand.beside])


def _without_gradients(busy: list[Stand], logs: list[RankLog]) -> Stand | None:
    """Return the one rank that is elsewhere while all others wait for gradients.

    Of ranks that a program starts itself nobody records what DDP calls.
    """
    away = [s for s in busy if not _waits_for_gradients(logs[s.rank])]
    return away[0] if len(away) == 1 < len(busy) else None


def _waits_for_gradients(log: RankLog) -> bool:
    return any(frame.file.endswith(GRADIENTS) for frame in log.stack[:1])


def _cycle(waiting: list[Stand]) -> Diagnosis | None:
    """Follow who waits for whom by send and recv until a rank comes up again."""
    stands = {s.rank: s for s in waiting if s.name in PEER_ARGUMENT and s.peers}
    for start in stands.values():
        path = [start]
        while (peer := path[-1].peers[0]) in stands and stands[peer] not in path:
            path.append(stands[peer])
        if peer == start.rank and {s.name for s in path} == {"send", "recv"}:
            if len(path) == 2 and path[0].tag != path[1].tag:
                return _other_tag(path)
        if peer == start.rank:
            steps = [
                f"rank {s.rank} waits in {s.name} for rank {s.peers[0]}" for s in path
            ]
            return Diagnosis(Symptom.CYCLE, ", ".join(steps), None, start.frame)
    return None


def _other_tag(path: list[Stand]) -> Diagnosis:
    """Two ranks mean each other, one sends and one receives, and they do not meet."""
    sides = [
        f"rank {s.rank} waits in {s.name} with tag {s.tag} for rank {s.peers[0]}"
        for s in path
    ]
    frame = path[0].frame
    return Diagnosis(Symptom.DIFFERENT_CALLS, ", but ".join(sides), None, frame)


def _other_source(waiting: list[Stand]) -> Diagnosis | None:
    """A rank receives from one rank while another one sends to it."""
    sends = {s.rank: s.peers[0] for s in waiting if s.name == "send" and s.peers}
    for stand in waiting:
        senders = [rank for rank, to in sends.items() if to == stand.rank]
        if stand.name == "recv" and stand.peers and senders:
            if stand.peers[0] not in senders:
                cause = f"waits in recv for rank {stand.peers[0]}, and {ranks(senders)}"
                cause += f" {conjugate('wait', senders)} in send for it"
                symptom = Symptom.DIFFERENT_CALLS
                return Diagnosis(symptom, cause, stand.rank, stand.frame)
    return None


def mismatch(calls: list[list[Call]], too_small: int | None = None) -> Diagnosis | None:
    """Say which call was not the same on all ranks, and what each rank did instead.

    Args:
        calls: of each rank.
        too_small: a rank without a record that got more than its tensor has room for.
    """
    by_rank = first_mismatch(calls)
    if not by_rank:
        return None
    texts = {rank: str(call) for rank, call in by_rank.items()}
    votes = dict(texts)
    if too_small is not None and too_small not in votes:
        votes[too_small] = str(min(by_rank.values(), key=lambda call: call.size))
    rank = odd_one(votes)
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
    absent = [stand for stand in stands if stand.state in AWAY]
    wanted = {peer for stand in waiting for peer in stand.peers}
    absent = [s for s in absent if s.rank in wanted] or absent
    if not absent:
        return None
    first, missing = waiting[0], ranks([stand.rank for stand in absent])
    wait, has = conjugate("wait", waiting), conjugate("have", absent)
    did = "left" if all(stand.state == "left" for stand in absent) else "not come"
    together = len({stand.frame and stand.frame.short for stand in absent}) == 1
    if len(waiting) == 1 and len(absent) > 1 and together:
        cause = f"waits in {first.name}, but {missing} {has} {did}"
        return Diagnosis(Symptom.ABSENT, cause, first.rank, first.frame)
    who = ranks([stand.rank for stand in waiting])
    cause = f"{has} {did}, and {who} {wait} in {first.name}"
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
        return _nobody_sends(waiting) or _lines_apart(waiting, known)
    rank = odd_one(groups)
    recorded = {stand.rank for stand in waiting if stand.call}
    if rank not in recorded and rank is not None and groups[rank][0] in ROOT_ARGUMENT:
        rank = None  # its src or dst does not wait for all, so others may be ahead
    first = next((s for s in waiting if s.rank == rank), waiting[0])
    where = [
        f"{ranks([s.rank for s in waiting if groups[s.rank] == group])} in {group[0]}"
        + (f" of group {group[1]}" if len({g[0] for g in groups.values()}) == 1 else "")
        for group in dict.fromkeys(groups.values())
    ]
    cause = "the ranks wait in different calls: " + ", ".join(where)
    return Diagnosis(Symptom.DIFFERENT_CALLS, cause, rank, first.frame)


def _lines_apart(waiting: list[Stand], known: bool) -> Diagnosis | None:
    """All wait in one call, of which there is no record, but not at the same line."""
    lines = {s.rank: s.frame.short for s in waiting if s.frame}
    rank = odd_one(lines)
    if known or rank is None:
        return None
    odd = next(stand for stand in waiting if stand.rank == rank)
    rest = [stand for stand in waiting if stand is not odd]
    cause = f"waits in {odd.name} at {lines[rank]}, but {ranks(s.rank for s in rest)} "
    cause += f"{conjugate('wait', rest)} in it at {lines[rest[0].rank]}"
    return Diagnosis(Symptom.DIFFERENT_CALLS, cause, rank, odd.frame)


def _nobody_sends(waiting: list[Stand]) -> Diagnosis | None:
    first = waiting[0]
    if first.call or first.name not in (*PEER_ARGUMENT, "wait"):
        return None
    cause = f"every rank waits in {first.name}, so nobody answers"
    return Diagnosis(Symptom.CYCLE, cause, None, first.frame)

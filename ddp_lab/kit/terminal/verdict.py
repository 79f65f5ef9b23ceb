"""Say what the looks at a job mean: it gets on, or stands still, or part of it does."""

from dataclasses import dataclass, field, replace

import psutil

from ddp_lab.kit.explain import hang
from ddp_lab.kit.explain.failure import Failure
from ddp_lab.kit.explain.hang import Diagnosis, Stand
from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record import stacks
from ddp_lab.kit.record.calls import from_flight
from ddp_lab.kit.record.logs import RankLog
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.record.words import conjugate
from ddp_lab.kit.terminal.jobs import duration
from ddp_lab.kit.terminal.seen import Seen

BUSY = 0.1  # of a core: a process that waits uses less, one that computes uses more
OFTEN = 0.5  # of the looks
SEVERAL = 2  # times that a rank was woken: it polls, or works in small pieces
# Where a rank waits for others although no call of its program says so: where DDP
# compares its parameters, and at the end of a backward pass.
WITHIN = ("torch/distributed/", "torch/nn/parallel/", "torch/autograd/graph.py")
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
UNKNOWN = ("unseen", "away")
SHOWN = 3  # of the lines at which a moving rank was seen
NO_LINE = "a line of a library"


@dataclass(frozen=True)
class Verdict:
    """What is told of a job."""

    hangs: bool
    """Whether nothing moves, nobody computes, and somebody waits."""
    failure: Failure
    """The explanation, in the words of a run's failure."""
    notes: list[str] = field(default_factory=list)


def judge(seen: dict[int, Seen], size: int, seconds: float) -> Verdict:
    """Return the explanation of a job whose ranks were watched for some `seconds`."""
    logs = [_log(seen.get(rank)) for rank in range(size)]
    stands = [_within(s, seen.get(s.rank)) for s in hang.find_stands(logs)]
    does = {rank: _does(one, stands[rank]) for rank, one in seen.items()}
    still = [
        replace(stand, state="elsewhere")
        if does.get(stand.rank) in ("moves", "busy", "frozen")
        else stand
        for stand in stands
    ]
    found = hang.diagnose(logs, still)
    quiet = set(does.values()) <= {"waits", "stands", "wakes", "gone"}
    if not (found and (quiet or _certain(found, does, logs))):
        together = set(does.values()) == {"waits"}
        found = _together(stands) if together else _described(does, stands, seen)
    hangs = "waits" in does.values() and not {"moves", "busy"} & set(does.values())
    failure = Failure(
        "hang" if hangs else "look",
        found.rank,
        found.cause.removeprefix(f"rank {found.rank} "),
        where=found.frame.place if found.frame else None,
        line=found.frame.line if found.frame else None,
        symptom=found.symptom if hangs else None,
        means=_means(does, seen, seconds),
        others={r: _told(stands[r], does[r], one) for r, one in seen.items()},
        stands=stands,
    )
    return Verdict(hangs, failure, _notes(seen, does))


def _certain(found: Diagnosis, does: dict[int, str], logs: list[RankLog]) -> bool:
    """Tell whether a diagnosis holds whatever the ranks do that are not still."""
    if hang.mismatch([log.calls for log in logs]):
        return True
    return found.symptom == Symptom.CYCLE and not set(UNKNOWN) & set(does.values())


def _log(seen: Seen | None) -> RankLog:
    if seen is None or seen.status == "away":
        return RankLog()
    if _ended(seen):
        return RankLog(end={"code": 0, "left_group": True})
    groups = seen.flight.get("groups", {})
    return RankLog(stack=seen.stack, calls=from_flight(seen.flight), groups=groups)


def _ended(seen: Seen) -> bool:
    return seen.status in (psutil.STATUS_ZOMBIE, "gone")


def _within(stand: Stand, seen: Seen | None) -> Stand:
    """Add what is known only of a process that stands still inside a library."""
    if stand.state not in ("elsewhere", "unknown") or not (seen and seen.stack):
        return stand
    inner, frame = seen.stack[0], stand.frame
    if frame is None:  # the program itself is an installed package
        mine = (f for f in seen.stack if not f.standard and "/torch/" not in f.file)
        frame = next(mine, None)
    if frame is None:  # it is past its last line, and waits for its threads
        frames = (stacks.own(stack) for _, stack in seen.threads)
        frame = next(filter(None, frames), None)
    if any(part in inner.file for part in WITHIN):
        name = "backward" if "autograd" in inner.file else _entered(seen.stack)
        return replace(stand, state="waits", frame=frame, name=name)
    return replace(stand, state="elsewhere", frame=frame)


def _entered(stack: list[Frame]) -> str:
    """Return the function of torch that the program has called."""
    frames = [frame for frame in stack if "/torch/" in frame.file]
    ddp = any("nn/parallel" in frame.file for frame in frames)
    return "DDP" if ddp else frames[-1].name


def _does(seen: Seen, stand: Stand) -> str:
    """Return in one word what a rank does."""
    if seen.status == "away":
        return "away"
    if _ended(seen):
        return "gone"
    if seen.status in STOPPED:
        return "frozen"
    if not seen.stack:
        return "unseen"
    if seen.moved:
        return "moves"
    computes = seen.share >= BUSY or seen.runnable >= OFTEN
    if stand.state == "waits" and not (computes and stand.name == "backward"):
        return "waits"
    if computes:
        return "busy"
    return "wakes" if seen.woken >= SEVERAL else "stands"


# --- the cause in one sentence ---


def _described(
    does: dict[int, str], stands: list[Stand], seen: dict[int, Seen]
) -> Diagnosis:
    """Say who does what, first whoever the others may be waiting for."""
    of: dict[str, list[int]] = {}
    for rank, what in does.items():
        of.setdefault(what, []).append(rank)
    if set(of) == {"moves"}:
        return Diagnosis(Symptom.BUSY, _all_move(seen), None)
    if set(of) == {"gone"}:
        return Diagnosis(Symptom.BUSY, "it has ended while we looked")
    clauses: list[str] = []
    culprits: list[int] = []
    for what in ("frozen", "gone", "stands", "wakes", "busy", "moves", *UNKNOWN):
        if found := of.get(what):
            clauses.append(f"{hang.ranks(found)} {_clause(what, found, stands)}")
            culprits = culprits or (found if what not in UNKNOWN else [])
    waiting = of.get("waits", [])
    for name in dict.fromkeys(stands[rank].name for rank in waiting):
        who = [rank for rank in waiting if stands[rank].name == name]
        clauses.append(f"{hang.ranks(who)} {conjugate('wait', who)} in {name}")
    alone = culprits[0] if len(culprits) == 1 else None
    *most, last = clauses
    text = f"{', '.join(most)}, and {last}" if most else last
    if alone is not None:  # the report puts it in front
        text = text.removeprefix(f"rank {alone} ")
    symptom = Symptom.ABSENT if waiting else Symptom.BUSY
    frame = stands[culprits[0]].frame if culprits else None
    if not culprits and waiting:
        frame = stands[waiting[0]].frame
    return Diagnosis(symptom, text, alone, frame)


def _clause(what: str, who: list[int], stands: list[Stand]) -> str:
    place = _places([stands[rank] for rank in who])
    return {
        "frozen": f"{conjugate('are', who)} frozen",
        "gone": f"{conjugate('are', who)} not there any more",
        "stands": f"{conjugate('stand', who)} at {place}",
        "wakes": f"{conjugate('run', who)} now and then at {place}",
        "busy": f"{conjugate('are', who)} busy at {place}",
        "moves": conjugate("move", who),
        "unseen": "cannot be looked at",
        "away": f"{conjugate('are', who)} not on this machine",
    }[what]


def _places(stands: list[Stand]) -> str:
    found = dict.fromkeys(s.frame.short if s.frame else NO_LINE for s in stands)
    return " and ".join(list(found)[:SHOWN])


def _all_move(seen: dict[int, Seen]) -> str:
    """Return that all ranks move, and which one the others wait for, if it is one."""
    cause = f"all {len(seen)} ranks move" if len(seen) > 1 else "it moves"
    never = [rank for rank, one in seen.items() if not one.waited]
    others = [one.waited for rank, one in seen.items() if rank not in never]
    if len(never) == 1 and others and min(others) >= OFTEN:
        cause += f"; rank {never[0]} is the slowest: the others wait for it"
    return cause


def _together(stands: list[Stand]) -> Diagnosis:
    """All ranks wait in calls of one name, and yet they do not come together."""
    waiting = [stand for stand in stands if stand.state == "waits"]
    if not waiting:
        return Diagnosis(Symptom.BUSY, "where the ranks stand cannot be told")
    names, places = waiting[0].name, _places(waiting)
    lines = {stand.frame.short if stand.frame else "" for stand in waiting}
    cause = f"every rank waits in {names}"
    if len(lines) > 1:
        cause += f", at different lines: {places}"
    cause += ", but they do not meet: groups, sizes or earlier calls may differ"
    cause += " (`ddp-lab torchrun` compares them)"
    return Diagnosis(Symptom.DIFFERENT_CALLS, cause, None, waiting[0].frame)


# --- and what else is known ---


def _means(does: dict[int, str], seen: dict[int, Seen], seconds: float) -> str | None:
    held, all_of_them = f"for at least {duration(seconds)}", set(does.values())
    silent = [one.silent for one in seen.values() if one.silent is not None]
    said = f"; the last output came {duration(min(silent))} ago" if silent else ""
    if "wakes" in all_of_them and "moves" not in all_of_them:
        woken = [rank for rank in does if does[rank] == "wakes"]
        who = f"{hang.ranks(woken)} {conjugate('are', woken)}"
        return (
            f"no rank has left its line {held}, but {who} woken now and then, as by "
            f"polling or by work in small steps{said}"
        )
    if all_of_them & {"waits", "stands"} and not all_of_them & {"moves", "busy"}:
        return f"nothing has moved {held}{said}"
    if "busy" in all_of_them:
        return f"a long computation, or a loop without an end, {held}{said}"
    if "waits" in all_of_them and "moves" in all_of_them:
        return f"those that wait have waited {held}; what moves may yet come{said}"
    return None


def _told(stand: Stand, does: str, seen: Seen) -> str:
    """Return what one rank does, and which process it is."""
    at = f" at {stand.frame.place}" if stand.frame else ""
    if does == "away":
        return "is not on this machine: `ddp-lab why --save` where it runs"
    if does == "gone" and not seen.pid:
        return "is not there: it has ended, or was never started"
    text = {
        "gone": "has ended, and its parent has not noticed (a zombie)",
        "frozen": f"is frozen{at}: a signal, or a debugger, has stopped it",
        "unseen": seen.trouble or "gives no stack",
        "moves": f"moves: {_seen_at(seen)}",
        "busy": f"is busy{at} ({seen.share:.0%} of a core)",
        "wakes": f"runs now and then{at}",
    }.get(does, str(stand))
    return f"{text} [{seen.host}, pid {seen.pid}]{_beside(stand, does, seen)}"


def _seen_at(seen: Seen) -> str:
    shown = seen.places[-SHOWN:]
    if not shown:
        return "seen in libraries only"
    more = " and more" if len(seen.places) > SHOWN else ""
    return f"seen at {', '.join(shown)}{more}"


def _beside(stand: Stand, does: str, seen: Seen) -> str:
    """Return where the workers and threads of a rank stand that waits for them."""
    if does not in ("stands", "wakes") or (seen.stack and seen.stack[0].own):
        return ""
    lines = []
    for pid, stack in seen.workers:
        if frame := stacks.own(stack):
            lines.append(f"its process {pid} stands at {frame.place}")
    for name, stack in seen.threads:
        if frame := stacks.own(stack):
            lines.append(f"its thread {name} stands at {frame.place}")
    return "".join(f"\n    {line}" for line in dict.fromkeys(lines[:SHOWN]))


def _notes(seen: dict[int, Seen], does: dict[int, str]) -> list[str]:
    notes = []
    if any(seen[r].nccl and does[r] in ("busy", "stands") for r in seen):
        notes.append(
            "NCCL: a rank at a line that reads from its GPU may wait there for a call "
            "that it has made before; TORCH_FR_BUFFER_SIZE=2000 keeps a record of them"
        )
    return notes

"""Say what the looks at a job mean: it gets on, or stands still, or part of it does."""

from dataclasses import dataclass, field, replace

import psutil

from ddp_lab.kit import say
from ddp_lab.kit.explain import hang
from ddp_lab.kit.explain.cause import Cause, Kind, Stand, Watched
from ddp_lab.kit.explain.failure import Failure
from ddp_lab.kit.explain.hang import BACKWARD, OFTEN
from ddp_lab.kit.explain.stands import RPC, communication, find_stands
from ddp_lab.kit.record import stacks
from ddp_lab.kit.record.calls import from_flight
from ddp_lab.kit.record.logs import RankLog
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.run.probe import thread_name
from ddp_lab.kit.terminal.seen import Seen

BUSY = 0.1  # of a core: a process that waits uses less, one that computes uses more
SEVERAL = 2  # times that a rank was woken: it polls, or works in small pieces
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
SHOWN = 3  # of the processes and threads that stand beside a rank


@dataclass(frozen=True)
class Verdict:
    """What is told of a job."""

    failure: Failure
    """The explanation, in the words of a run's failure."""
    notes: list[str] = field(default_factory=list)


def judge(seen: dict[int, Seen], size: int, seconds: float) -> Verdict:
    """Return the explanation of a job whose ranks were watched for some `seconds`."""
    logs = [_log(seen[rank]) for rank in range(size)]
    found = [_watched(s, seen[s.rank]) for s in find_stands(logs)]
    sent = [(s.rank, *s.peers) for s in found if (s.state, s.name) == ("moves", "send")]
    for stand in found:  # of recv nobody counts the bytes
        if stand.name == "recv" and (*stand.peers, stand.rank) in sent:
            found[stand.rank] = replace(stand, state="moves")
    why = hang.diagnose(logs, found) or hang.does(found)
    states = {stand.state for stand in found}
    # Nothing moves, nobody computes, and somebody waits.
    hangs = "waits" in states and not {"moves", "busy"} & states
    silent = [one.silent for one in seen.values() if one.silent is not None]
    last = say.duration(min(silent)) if silent else ""
    also = Cause(Kind.WATCHED, limit=seconds, name=last, stands=tuple(found))
    nccl = any(seen[s.rank].nccl for s in found if s.state in ("busy", "elsewhere"))
    notes = [say.cause(Cause(Kind.UNRECORDED))] if nccl else []
    failure = Failure(
        "hang" if hangs else "look",
        why if hangs else replace(why, symptom=None),
        (also,),
        told={stand.rank: stand for stand in found},
        stands=found,
    )
    return Verdict(failure, notes)


def _log(seen: Seen) -> RankLog:
    if seen.status == "away":
        return RankLog()
    if _ended(seen):
        return RankLog(end={"code": 0, "left_group": True})
    groups = seen.flight.get("groups", {})
    calls, threads = from_flight(seen.flight), {}
    if not _computes(seen):
        threads = {n: s for n, s in seen.threads if stacks.own(s) or communication(s)}
    return RankLog(stack=seen.stack, calls=calls, groups=groups, threads=threads)


def _computes(seen: Seen) -> bool:
    remote = any(RPC in frame.file for frame in seen.stack)  # whose threads poll
    return seen.share >= BUSY and not remote or seen.runnable >= OFTEN


def _ended(seen: Seen) -> bool:
    return seen.status in (psutil.STATUS_ZOMBIE, "gone")


def _watched(stand: Stand, seen: Seen) -> Stand:
    """Add what is known only of a process that is watched for a while."""
    if stand.frame is None:
        stand = replace(stand, frame=_line(seen))
    if stand.state == "unknown" and seen.stack:
        stand = replace(stand, state="elsewhere")
    computes = _computes(seen)
    in_backward = bool(seen.stack) and seen.stack[0].file.endswith(BACKWARD)
    if in_backward and not computes:
        stand = replace(stand, state="waits", name="backward")
    state = _state(stand, seen, computes)
    return replace(
        stand,
        state=state,
        beside=_beside(seen) if state in ("elsewhere", "wakes") else (),
        watched=Watched(
            seen.host, seen.pid, seen.share, seen.waited, (*seen.places,), seen.trouble
        ),
    )


def _line(seen: Seen) -> Frame | None:
    """Return a line of a rank that stands in none of its program's files."""
    libraries = ("/torch/", stacks.KIT)
    own = [
        frame
        for frame in seen.stack
        if not (frame.standard or any(part in frame.file for part in libraries))
    ]
    if own:  # the program itself is an installed package
        return own[0]
    # It is past its last line, and waits for its threads.
    frames = (stacks.own(stack) for _, stack in seen.threads if seen.stack)
    return next(filter(None, frames), None)


def _state(stand: Stand, seen: Seen, computes: bool) -> str:
    """Return in one word what a rank does; see `Stand.state`."""
    if seen.status == "away" or _ended(seen):
        return "away" if seen.status == "away" else "left"
    if seen.status in STOPPED:
        return "stopped"
    if not seen.stack:
        return "unseen"
    if seen.moved:
        return "moves"
    if stand.state == "waits" or not computes:
        polls = stand.state == "elsewhere" and seen.woken >= SEVERAL
        return "wakes" if polls else stand.state
    return "busy"


def _beside(seen: Seen) -> tuple[tuple[str, Frame | None], ...]:
    """Return where the workers and threads of a rank stand that waits for them."""
    if seen.stack and seen.stack[0].own:
        return ()
    found = {f"process {pid}": stack for pid, stack in seen.workers}
    found |= {thread_name(name, stack): stack for name, stack in seen.threads}
    told = [(name, frame) for name, s in found.items() if (frame := stacks.own(s))]
    return tuple(told[:SHOWN])

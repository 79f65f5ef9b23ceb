"""Say where each rank stands: whom it waits for, or what it does instead."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from whichrank.explain.cause import Ended, Stand
from whichrank.explain.causes.ended import Exited, Raised, Signalled
from whichrank.explain.states import (
    UNKNOWN_CALL,
    WORK,
    Elsewhere,
    Halted,
    Left,
    Lingers,
    Unknown,
    Waits,
)
from whichrank.record.calls import Call, Key
from whichrank.record.heard import listen
from whichrank.record.rank_log import RankLog
from whichrank.record.source import idles
from whichrank.record.stacks import (
    C10D,
    OURS,
    Frame,
    last_error,
    own,
    parting,
    starts_up,
)

# The arguments in which a call names one rank: as in the whole world, or in the group.
DST, SRC = ("dst", "group_dst"), ("src", "group_src")
PEER_ARGUMENT = {
    "send": DST,
    "recv": SRC,
    "send_object_list": DST,
    "recv_object_list": SRC,
}
ROOT_ARGUMENT = {
    "broadcast": SRC,
    "scatter": SRC,
    "reduce": DST,
    "gather": DST,
    "broadcast_object_list": SRC,
    "scatter_object_list": SRC,
    "gather_object": DST,
}
ALONE = ("destroy_process_group",)  # in which a rank does not wait for the others
# Innermost frames of a rank that waits for others in no call of torch.distributed, as
# where DDP compares its parameters. Of remote calls (RPC) nobody records who waits.
WITHIN = ("torch/distributed/", "torch/nn/parallel/")
RPC = "torch/distributed/rpc/"
ALL_MEET = ("init_rpc", "shutdown")  # of the calls of torch's RPC
CHECKPOINT = "torch/distributed/checkpoint/"  # where a rank writes and reads as well
FUNCTIONAL = "torch/distributed/_functional_collectives.py"  # as of DTensor
GROUP = "ProcessGroup at 0x"  # what py-spy shows of one
WAIT = re.compile(r"\b((?:\w+\.)*(\w+))\.wait\(")
ATTRIBUTE = re.compile(r"\.\w+\.wait\(")  # of which no stack shows the value
OTHER_WAIT = re.compile(r"\b(os|store\w*)\.wait\(|\.wait\(\[")
TORCH = str(Path("/torch/"))
# In which a thread waits for another: join, Future.result, Queue.get, an event loop.
HANDS_OVER = (str(Path("/threading.py")), str(Path("/asyncio/")))


def find_stands(logs: list[RankLog]) -> list[Stand]:
    """Return where each rank stood when it was last seen."""
    stands = [_handling(_stand(rank, log), log) for rank, log in enumerate(logs)]
    made = [{call.key for call in log.calls} for log in logs]
    done = [{call.key for call in log.calls if call.done} for log in logs]
    stands = [_not_long_done(stand, done) for stand in stands]
    stands = [_with_peers(stand, made) for stand in stands]
    stands = [_with_outer(_waited_for(stand, stands), logs) for stand in stands]
    return [_with_caller(stand, stands) for stand in stands]


def _not_long_done(stand: Stand, done: list[set[Key]]) -> Stand:
    """Return where a rank waits of which only its last call is known.

    gloo records no message: a rank that has given up in `work.wait()` may have waited
    for one, and then its last collective is done everywhere else.
    """
    if not isinstance(stand, Waits) or not stand.call or not stand.guessed:
        return stand
    made = stand.call.frame
    if made and stand.frame and made.short == stand.frame.short:  # it stands in it
        return stand
    members = stand.call.members or range(len(done))
    others = [r for r in members if r < len(done) and r != stand.rank]
    if others and all(stand.call.key in done[rank] for rank in others):
        return replace(stand, name=WORK, call=None)
    return stand


def _waited_for(stand: Stand, stands: list[Stand]) -> Stand:
    """Return the stand of a rank that may wait in a `wait` that is not torch's.

    If all that wait for a collective wait for this rank alone, it waits for none of
    them: `board.kv.wait(keys)` is a store.
    """
    if not isinstance(stand, Waits) or stand.call or stand.name != WORK:
        return stand
    waiting = [s for s in stands if s.waits and s is not stand]
    alone = waiting and all(s.peers == (stand.rank,) for s in waiting)
    return Elsewhere(stand.rank, stand.frame) if alone and stand.guessed else stand


def _with_outer(stand: Stand, logs: list[RankLog]) -> Stand:
    stack = logs[stand.rank].stack
    return replace(stand, outer=tuple(frame for frame in stack if frame.own))


def _with_caller(stand: Stand, stands: list[Stand]) -> Stand:
    """Add to a rank in a helper which line calls it, where those of others differ."""
    ways = [s.outer[::-1] for s in stands if s.frame and s.short() == stand.short()]
    at, way = parting(ways), stand.outer[::-1]
    if at is None or at >= len(way) - 1 or way[-1] != stand.frame:
        return stand
    return replace(stand, caller=way[at])


def _handling(stand: Stand, log: RankLog) -> Stand:
    """Return the stand of a rank that waits while it handles an exception of its own.

    So it does in a `finally`, or at the end of a `with`: nobody has been told yet.
    """
    if not log.handles or not isinstance(stand, Waits | Elsewhere):
        return stand
    error = log.handles.error
    if listen(error).gave_up:
        return stand
    raised = own([*log.handles.frames])
    end = Raised(error=error, since=stand)
    return Left(stand.rank, raised or stand.frame, end)


def _stand(rank: int, log: RankLog) -> Stand:
    if log.finished:
        return Left(rank, own(log.frames))
    if not log.heard.gave_up and (end := _end(log)):
        return Left(rank, own(log.stack), end)
    if log.stopped:
        return Halted(rank, own(log.stack))
    if _after_main(log.stack):
        return _lingering(rank, log)
    if log.raised and not log.heard.gave_up:  # and its end takes long
        return Left(rank, own(log.stack), _raised(log))
    return _inside(rank, log)


def _end(log: RankLog) -> Ended | None:
    """Return how a rank ended that nobody had asked to end, if it did, and not well."""
    if not log.exit or log.exit.asked or not log.exit.code:
        return None
    code = log.exit.code
    if log.raised or code > 0 and log.traceback:
        return _raised(log)
    return Exited(code=code) if code > 0 else Signalled(code=code)


def _raised(log: RankLog) -> Raised:
    error = log.raised.error if log.raised else last_error(log.traceback)
    return Raised(error=error)


def _after_main(stack: list[Frame]) -> bool:
    """Tell whether the main thread has done its program, and what comes after it."""
    if any(f.name == "_finish" and OURS.search(f.file) for f in stack):
        return True  # see program.py
    ending = [
        frame.name
        for frame, caller in zip(stack, stack[1:], strict=False)
        if caller.begins_child
    ]
    return ending in (["_shutdown"], ["_exit_function"])


def _lingering(rank: int, log: RankLog) -> Lingers:
    """Return where a rank stands that should have ended."""
    if frame := own(log.stack):
        return Lingers(rank, frame, "an exit function")
    threads = [(f"thread {name}", own(stack)) for name, stack in log.threads.items()]
    name, frame = next(iter(threads or beside(log)), ("", None))
    return Lingers(rank, frame, name)


def _inside(rank: int, log: RankLog) -> Stand:
    """Return where a rank stands that is in the midst of its program."""
    frame, inside = own(log.stack), communication(log.stack)
    if inside and inside.name not in ALONE:
        return _calling(rank, log, inside)
    if name := _waits_in(log):
        undone = _undone(log)
        call = undone[0] if undone and name == undone[0].name else None
        guessed = bool(frame and ATTRIBUTE.search(frame.code)) or log.heard.gave_up
        return Waits(rank, frame, name, call, guessed=guessed)
    for stack in log.threads.values() if _waits_for_thread(log.stack) else ():
        if communication(stack):
            there = _inside(rank, replace(log, stack=stack))
            at = (("main thread", frame),) if there.frame else ()
            return replace(there, frame=there.frame or frame, beside=at)
    if frame is None:
        return Unknown(rank, printed=(log.lines or [""])[-1])
    return Elsewhere(rank, frame, beside=beside(log))


def _waits_for_thread(stack: list[Frame]) -> bool:
    """Tell whether a thread waits for what another one does, as in its `join`."""
    library = takewhile(lambda frame: not frame.own, stack)
    return any(part in frame.file for frame in library for part in HANDS_OVER)


def _calling(rank: int, log: RankLog, inside: Frame) -> Waits:
    """Return where a rank stands that is in a function of torch.distributed."""
    calls = [c for c in log.calls if not c.done and c.name == inside.name]
    peer = _named(inside, PEER_ARGUMENT)
    return Waits(
        rank,
        own(log.stack),
        inside.name,
        call=calls[-1] if calls else None,
        peers=() if peer is None else (peer,),
        root=_named(inside, ROOT_ARGUMENT),
        names_group=_is_given_group(log.stack),
        members=inside.values.get("ranks", "") if inside.name == "new_group" else "",
    )


def called(log: RankLog) -> str:
    """Return in which call of torch.distributed a rank stands, or has died."""
    inside = communication(log.stack)
    if inside:
        return inside.name
    return WORK if _waits_for_work(log) else ""


def _waits_in(log: RankLog) -> str:
    """Return in which communication a rank waits outside of such a function, if any.

    Its stack may end in its own line, as C++ has none: a call that is not done tells
    then only if it runs on a device, which the host has left behind.
    """
    undone = _undone(log)
    in_library = bool(log.stack) and not log.stack[0].own
    on_work = _waits_for_work(log) or bool(undone) and _polls(log)
    if undone and (in_library or on_work or any(call.on_device for call in undone)):
        return undone[0].name
    if on_work:
        return WORK
    if log.heard.gave_up:
        return undone[0].name if undone else UNKNOWN_CALL
    if communication(log.stack) or starts_up(log.stack):
        return ""
    meets = [f.name for f in log.stack if RPC in f.file and f.name in ALL_MEET]
    return meets[0] if meets else _within(log.stack)


def _undone(log: RankLog) -> list[Call]:
    """Return the calls that are not done, and first the one that is waited for.

    Of `handle.wait()` that is the call whose line begins with `handle =`.
    """
    frame = own(log.stack)
    name = WAIT.search(frame.code) if frame else None
    undone = [call for call in log.calls if not call.done]
    if not name:
        return undone
    made = f"{name[1]} = "  # of `self.handle.wait()` as well
    return sorted(undone, key=lambda c: not (c.frame and c.frame.code.startswith(made)))


def _polls(log: RankLog) -> bool:
    """Tell whether a rank asks again and again, as whether its call is completed."""
    frame = own(log.stack)
    return frame is not None and idles(frame)


def _waits_for_work(log: RankLog) -> bool:
    """Tell whether a rank waits for what an asynchronous call has returned.

    `w.wait()` is C++, so the stack ends at the program's line, which may have another
    statement, or a `wait` of something else: `os.wait()`, or of a store for its keys.
    """
    frame, innermost = own(log.stack), log.stack[0] if log.stack else None
    if not frame or not innermost:
        return False
    if not all(".wait(" in part for part in frame.code.split(";")):
        return False  # or it may be in another statement of the line
    if not innermost.own:
        return TORCH in innermost.file
    name = WAIT.search(frame.code)
    value = frame.values.get(name[2], "Work") if name else "Work"
    of_torch = "Work" in value or "Future" in value  # no other Future has a `wait`
    return of_torch and not OTHER_WAIT.search(frame.code)


def _within(stack: list[Frame]) -> str:
    """Return the function of torch that the program has called, if it waits for others.

    A functional collective, as of a DTensor, is an operator like a computation.
    """
    library = [*takewhile(lambda frame: not frame.own, stack)]
    innermost = stack[0].file if stack else ""
    functional = any(frame.file.endswith(FUNCTIONAL) for frame in library)
    own_work = any(part in innermost for part in (RPC, CHECKPOINT))
    waits = not own_work and any(part in innermost for part in WITHIN)
    return entered(stack) if functional or waits else ""


def beside(log: RankLog) -> tuple[tuple[str, Frame | None], ...]:
    """Return where the other threads of a rank stand, and its processes."""
    return tuple((name, own(stack)) for name, stack in log.beside.items())


def entered(stack: list[Frame]) -> str:
    """Return the function of torch that the program has called."""
    called = [*takewhile(lambda frame: not frame.own, stack)] or stack[:1]
    ddp = any("nn/parallel" in frame.file for frame in called)
    return "DDP" if ddp else called[-1].name


def communication(stack: list[Frame]) -> Frame | None:
    """Return the function of torch.distributed that the program has called."""
    outermost = None
    for frame in stack:
        if frame.own:
            break
        if frame.file.endswith(C10D):
            outermost = frame
    return outermost


def _is_given_group(stack: list[Frame]) -> bool:
    """Tell whether the program has named a group in its call of torch.distributed."""
    library = takewhile(lambda frame: not frame.own, stack)
    given = [f.values.values() for f in library if f.name == "wrapper"]
    return any(GROUP in value for values in given for value in values)


def _named(frame: Frame, arguments: Mapping[str, tuple[str, ...]]) -> int | None:
    """Return the rank that a call names; its local variables tell."""
    for name in arguments.get(frame.name, ()):
        if frame.values.get(name, "").isdecimal():
            return int(frame.values[name])
    return None


def _with_peers(stand: Stand, made: list[set[Key]]) -> Stand:
    """Add to a rank that waits in a collective who has not made this call yet.

    Args:
        stand: its stand.
        made: the calls that each rank has made, this one included.
    """
    if not isinstance(stand, Waits) or not stand.call or stand.call.p2p:
        return stand
    members = stand.call.members or range(len(made))
    absent = [r for r in members if r < len(made) and stand.call.key not in made[r]]
    return replace(stand, peers=tuple(absent))

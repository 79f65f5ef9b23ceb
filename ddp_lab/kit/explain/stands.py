"""Say where each rank stands: whom it waits for, or what it does instead."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from ddp_lab.kit.explain.cause import Cause, Kind, Stand
from ddp_lab.kit.record.heard import listen
from ddp_lab.kit.record.rank_log import RankLog
from ddp_lab.kit.record.stacks import (
    C10D,
    KIT,
    Frame,
    from_lists,
    last_error,
    own,
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
TAG_ARGUMENT = {"send": ("tag",), "recv": ("tag",)}
ALONE = ("destroy_process_group",)  # in which a rank does not wait for the others
# In which a rank waits for others although no call of its program says so: where DDP
# compares its parameters, say. Of remote calls nobody knows who waits for whom.
WITHIN = ("torch/distributed/", "torch/nn/parallel/")
RPC = "torch/distributed/rpc/"
WORK = "Work.wait"  # of what an asynchronous call returns
CHECKPOINT = "torch/distributed/checkpoint/"  # where a rank writes and reads as well
FUNCTIONAL = "torch/distributed/_functional_collectives.py"  # as of DTensor
GROUP = "ProcessGroup at 0x"  # what py-spy shows of one
OF_THREADS = ("threading.py", str(Path("concurrent/futures/thread.py")))
IN_ASYNCIO = ("selectors.py", str(Path("/asyncio/")))


def find_stands(logs: list[RankLog]) -> list[Stand]:
    """Return where each rank stood when it was last seen."""
    stands = [_stand(rank, log) for rank, log in enumerate(logs)]
    if not all(log.handles for log in logs):  # else all have come to the same place
        stands = [_handling(stand, logs[stand.rank]) for stand in stands]
    return [_with_outer(_with_peers(stand, logs), logs) for stand in stands]


def _with_outer(stand: Stand, logs: list[RankLog]) -> Stand:
    stack = logs[stand.rank].stack
    return replace(stand, outer=tuple(frame for frame in stack if frame.own))


def _handling(stand: Stand, log: RankLog) -> Stand:
    """Return the stand of a rank that waits while it handles an exception of its own.

    So it does in a `finally`, or at the end of a `with`: nobody has been told yet.
    """
    if not log.handles or stand.state not in ("waits", "elsewhere"):
        return stand
    error = log.handles["error"]
    if listen(error).gave_up:
        return stand
    raised = own(from_lists(log.handles["frames"]))
    end = Cause(Kind.RAISED, error=error, stands=(stand,))
    return Stand(stand.rank, "left", raised or stand.frame, end=end)


def _stand(rank: int, log: RankLog) -> Stand:
    if log.finished:
        return Stand(rank, "left")
    if not log.heard.gave_up and (end := _end(log)):
        return Stand(rank, "left", own(log.stack), end=end)
    if log.stopped:
        return Stand(rank, "stopped", own(log.stack))
    if _after_main(log.stack):
        return _lingering(rank, log)
    if log.raised and not log.heard.gave_up:  # and its end takes long
        return Stand(rank, "left", own(log.stack), end=_raised(log))
    return _inside(rank, log)


def _end(log: RankLog) -> Cause | None:
    """Return how a rank ended that nobody had asked to end, if it did, and not well."""
    if not log.exit or log.exit["asked"] or not log.exit["code"]:
        return None
    code = log.exit["code"]
    if log.raised or code > 0 and log.traceback:
        return _raised(log)
    return Cause(Kind.EXIT if code > 0 else Kind.SIGNAL, code=code)


def _raised(log: RankLog) -> Cause:
    error = log.raised["error"] if log.raised else last_error(log.traceback)
    return Cause(Kind.RAISED, error=error)


def _after_main(stack: list[Frame]) -> bool:
    """Tell whether the main thread has done its program, and what comes after it."""
    if any(f.name == "_finish" and KIT in f.file for f in stack):
        return True  # see rank.py
    ending = [
        frame.name
        for frame, caller in zip(stack, stack[1:], strict=False)
        if caller.begins_child
    ]
    return ending in (["_shutdown"], ["_exit_function"])


def _lingering(rank: int, log: RankLog) -> Stand:
    """Return where a rank stands that should have ended."""
    end = _raised(log) if log.raised else None
    if frame := own(log.stack):
        return Stand(rank, "lingers", frame, "an exit function", end=end)
    waits = [(f"thread {name}", own(stack)) for name, stack in log.threads.items()]
    for name, frame in waits or beside(log):
        if frame:
            return Stand(rank, "lingers", frame, name, end=end)
    for name, stack in log.threads.items():  # which a library has sent to work
        calls = [frame for frame in stack if not frame.file.endswith(OF_THREADS)]
        does = f" ({Path(calls[-1].file).stem}.{calls[-1].name})" if calls else ""
        return Stand(rank, "lingers", name=f"thread {name}{does}", end=end)
    return Stand(rank, "lingers", end=end)


def _inside(rank: int, log: RankLog) -> Stand:
    """Return where a rank stands that is in the midst of its program."""
    frame, undone = own(log.stack), [call for call in log.calls if not call.done]
    inside = communication(log.stack)
    if inside and inside.name not in ALONE:
        calls = [call for call in undone if call.name == inside.name]
        call = calls[-1] if calls else None
        peer, root = _named(inside, PEER_ARGUMENT), _named(inside, ROOT_ARGUMENT)
        peers = () if peer is None else (peer,)
        tag = _named(inside, TAG_ARGUMENT)
        members = inside.values.get("ranks", "") if inside.name == "new_group" else ""
        given = _is_given_group(log.stack)
        found = Stand(rank, "waits", frame, inside.name, call, peers, root, tag, given)
        return replace(found, members=members)
    in_library = bool(log.stack) and not log.stack[0].own
    # In C++ or torch, and not in a thread, say.
    in_torch = not in_library or str(Path("/torch/")) in log.stack[0].file
    on_work = frame is not None and ".wait(" in frame.code and in_torch
    where = in_library or on_work or any(call.on_device for call in undone)
    if undone and where or on_work or log.heard.gave_up:
        call = undone[0] if undone else None
        name = call.name if call else WORK if on_work else "a communication"
        return Stand(rank, "waits", frame, name, call)
    if _within(log.stack) and not inside and not starts_up(log.stack):
        return Stand(rank, "waits", frame, entered(log.stack))
    for stack in log.threads.values():
        if not inside and communication(stack):
            there = _inside(rank, replace(log, stack=stack))
            return replace(there, frame=there.frame or frame)
    innermost = log.stack[0].file if log.stack else ""
    if any(part in innermost for part in IN_ASYNCIO) and any(
        map(own, log.tasks.values())
    ):
        return _in_tasks(rank, log)
    if frame is None:
        return Stand(rank, "unknown", printed=(log.lines or [""])[-1])
    return Stand(rank, "elsewhere", frame, beside=beside(log))


def _within(stack: list[Frame]) -> bool:
    """Tell whether a rank is in code of torch that waits for others."""
    library = [*takewhile(lambda frame: not frame.own, stack)]
    if any(frame.file.endswith(FUNCTIONAL) for frame in library):
        return True  # and in an operator, as of a computation
    innermost = stack[0].file if stack else ""
    own_work = any(part in innermost for part in (RPC, CHECKPOINT))
    return not own_work and any(part in innermost for part in WITHIN)


def _in_tasks(rank: int, log: RankLog) -> Stand:
    """Return where a rank stands whose main thread waits for tasks of asyncio."""
    frames = {name: frame for name, s in log.tasks.items() if (frame := own(s))}
    first, *rest = sorted(frames, key=lambda name: (len(name), name))  # as begun
    more = tuple((f"task {name}", frames[name]) for name in rest)
    return Stand(rank, "elsewhere", frames[first], beside=more + beside(log))


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
    found = None
    for frame in stack:
        if frame.own:
            break
        if frame.file.endswith(C10D):
            found = frame
    return found


def _is_given_group(stack: list[Frame]) -> bool:
    """Tell whether the program has named a group in its call of torch.distributed."""
    library = takewhile(lambda frame: not frame.own, stack)
    given = [f.values.values() for f in library if f.name == "wrapper"]
    return any(GROUP in value for values in given for value in values)


def _named(frame: Frame, arguments: Mapping[str, tuple[str, ...]]) -> int | None:
    """Return the rank, or the tag, that a call names; its local variables tell."""
    for name in arguments.get(frame.name, ()):
        if frame.values.get(name, "").isdecimal():
            return int(frame.values[name])
    return None


def _with_peers(stand: Stand, logs: list[RankLog]) -> Stand:
    """Add to a rank that waits in a collective who has not made this call yet."""
    if stand.call is None or stand.call.p2p:
        return stand
    members = stand.call.members or range(len(logs))
    made = [{call.key for call in log.calls} for log in logs]
    absent = [r for r in members if r < len(logs) and stand.call.key not in made[r]]
    return replace(stand, peers=tuple(absent))

"""Every sentence that the lab tells about a run, made from the facts of cause.py.

First the cause, a function for each kind; then what is told beside it; then where each
rank stands; at last the attempts. Where one rank or node is to blame, the report puts
its name in front, so the sentence goes on from there: `has not come, and ...`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ddp_lab.kit.explain.cause import Attempts, Cause, Kind, Stand
from ddp_lab.kit.record.calls import Call
from ddp_lab.kit.record.files import shorten
from ddp_lab.kit.record.words import conjugate, ended_by, listed, signal_name

What = TypeVar("What")
STOPPED = {
    "timeout": "no end after {0:g} seconds; all processes were stopped",
    "interrupt": "stopped by hand; all processes were ended",
    "output": "more than {0:,} bytes of output; all processes were stopped",
    # Nobody asked for these: the system for want of memory, somebody by hand, or, of
    # their own parents, a rank.
    "guard": "the guard of this run was ended by {0} from outside; all processes were "
    "stopped",
    "torchrun": "torchrun itself was ended by {0}, and its ranks with it",
    "nodes": "what plays the nodes on this machine (room.py, or its switch.py) was "
    "ended by {0} from outside, and the nodes with it",
    "srun": "srun was ended by {0} from outside, and the ranks with it",
    "slurm": "ended by SLURM: {0}",
    "warm": "the warm process, which is the parent of torchrun and of all ranks, was "
    "ended by {0}, and the run with it; the next run starts a new one",
}
USUAL_SENDER = {
    "SIGKILL": "usually sent by the system when memory runs out",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "a crash in native code, or a failed check there",
    "SIGBUS": "often a full /dev/shm",
}
OTHERS = {  # of ranks that are busy: what is known of the rest
    "": "no rank is seen to wait for another",
    "rpc": "of remote calls nobody records who waits for whom",
    "left": "the others have left",
}
OWN_STORE = (
    "all attempts share one store; TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the "
    "environment gives each its own, with `--standalone` or `--rdzv-backend c10d`"
)
BUG = "this is a bug, not a fault, and restarting does not help"
NO_LINE = "a line of a library"
TIMES = {1: "once", 2: "twice"}
NOT_MET = "every rank waits in {0.name}, and does not find the others"
# What tells where the one rank stands that it is about.
WHOLE = (Kind.BUSY, Kind.LINGERS, Kind.DOES)
SHOWN = 3  # of the lines at which a moving rank was seen


# Sentences that need no grammar; the others are functions, below.
PLAIN = {
    Kind.RAISED: "{0.error}",
    Kind.NODE_SAID: "{0.error}",
    Kind.HELD: "{0.error}",
    Kind.OLD_FILE: "the ranks do not meet in {0.places[0]}, which has to be a new file "
    "for each run",
    Kind.NOT_MET: NOT_MET,
    Kind.NOBODY_LISTENS: f"{NOT_MET}: "
    "nobody listens at {0.places[0]}, which the program has set. Under torchrun rank 0 "
    "opens no store of its own, unless TORCHELASTIC_USE_AGENT_STORE is False",
    Kind.NOBODY_SENDS: "every rank waits in {0.waiting[0].name}, so nobody answers",
    Kind.ENDED: "it has ended while we looked",
    Kind.CUT_OFF: "is cut off: its cable is pulled",
    Kind.NO_NODE_0: "the node with --node-rank 0 has not come: nobody is at "
    "{0.places[0]}",
    Kind.SLOW_LINK: "the network is slow",
    Kind.NODES_NOT_MET: "the nodes do not meet at {0.places[0]}, although they were "
    "started alike",
    Kind.EVENT: "by the event `{0.name}`",
    Kind.RENDEZVOUS_LOST: "the others have lost the rendezvous with it",
    Kind.NOT_JOINED: "no rank has joined a process group: {0.limit} copies of the "
    "program have run side by side, and none knew of the others",
    Kind.UNRECORDED: "NCCL: a rank at a line that reads from its GPU may wait there "
    "for a call that it has made before; TORCH_FR_BUFFER_SIZE=2000 keeps a record "
    "of them",
}


def cause(why: Cause) -> str:
    """Return the cause as one line."""
    plain = PLAIN.get(why.kind)
    return plain.format(why) if plain else SENTENCES[why.kind](why)


def who(why: Cause, places: Mapping[int, str]) -> str:
    """Return whom a report blames: a rank, and where that is, a node, or the run."""
    if why.rank is not None:
        return rank(why.rank, places)
    return "the run" if why.node is None else f"node {why.node}"


def rank(number: int, places: Mapping[int, str]) -> str:
    """Return `rank 3`, and where it is if there are several nodes."""
    place = places.get(number)
    return f"rank {number} ({place})" if place else f"rank {number}"


def ranks(numbers: Iterable[int]) -> str:
    """Return `rank 1` or `ranks 0, 2 and 3`."""
    return _several("rank", numbers)


def nodes(numbers: Iterable[int]) -> str:
    """Return `node 1` or `nodes 0 and 2`."""
    return _several("node", numbers)


def _several(what: str, numbers: Iterable[int]) -> str:
    names = [str(number) for number in numbers]
    return f"{what}{'s' * (len(names) > 1)} {listed(names)}"


# --- how a rank has ended ---


def _signal(why: Cause) -> str:
    return f"ended by {_signal_and_sender(why)}"


def _exit(why: Cause) -> str:
    said = f": {why.error}" if why.error else ""
    return f"exit code {why.code}{said}"


def _unwilling(why: Cause) -> str:
    stood = "".join(f"; it {stand(each)}" for each in why.stands)
    return f"was asked to end, and did not{stood}"


def _launcher(why: Cause) -> str:
    return f"the launcher was ended by {_signal_and_sender(why)}"


def _stopped(why: Cause) -> str:
    return STOPPED[why.name].format(why.limit)


def _signal_and_sender(why: Cause) -> str:
    name = signal_name(-(why.code or 0)) or f"signal {-(why.code or 0)}"
    if why.name:
        return f"{name} ({PLAIN[Kind.EVENT].format(why)})"
    return f"{name} ({USUAL_SENDER[name]})" if name in USUAL_SENDER else name


# --- why the ranks stand still ---


def _cycle(why: Cause) -> str:
    return ", ".join(
        f"rank {s.rank} waits in {s.name} for rank {s.peers[0]}" for s in why.stands
    )


def _other_tag(why: Cause) -> str:
    return ", but ".join(
        f"rank {s.rank} waits in {s.name} with tag {s.tag} for rank {s.peers[0]}"
        for s in why.stands
    )


def _pair(why: Cause) -> str:
    return f"{_cycle(why)}: a message on its way, or they mean different groups"


def _other_source(why: Cause) -> str:
    (one,) = why.stands
    senders = [s.rank for s in why.waiting]
    return (
        f"waits in recv for rank {one.peers[0]}, and {ranks(senders)} "
        f"{conjugate('wait', senders)} in send for it"
    )


def _fewer_groups(why: Cause) -> str:
    return (
        f"every rank has to call new_group for every group, but {ranks(why.ranks)} "
        f"{conjugate('have', why.ranks)} called it less often than the others"
    )


def _meets_elsewhere(why: Cause) -> str:
    subject = f"{ranks(why.ranks)} " if why.rank is None else ""
    return (
        f"{subject}{conjugate('look', why.ranks)} for the others at {why.places[0]}, "
        f"but torchrun has told them to meet at {why.places[1]}"
    )


def _joins_as_another(why: Cause) -> str:
    says, told = why.places
    if why.rank is not None:
        return f"joins as {says}, but torchrun has started it as {told}"
    return (
        f"{ranks(why.ranks)} do not join as what torchrun has started: rank "
        f"{why.ranks[0]} joins as {says}, not as {told}"
    )


def _calls_differ(why: Cause) -> str:
    sides = _sides((str(call), number) for number, call in why.calls.items())
    first = {what: why.calls[on[0]] for what, on in sides.items()}
    told = [f"{w}{_at(first[w])} on {ranks(on)}" for w, on in sides.items()]
    before = f"; {cause(why.of)}" if why.of else ""
    return f"call {next(iter(first.values())).number} is {', but '.join(told)}{before}"


def _called_elsewhere(why: Cause) -> str:
    sides = _sides((_at(call).strip(), number) for number, call in why.calls.items())
    told = [f"{place} on {ranks(on)}" for place, on in sides.items()]
    number = next(iter(why.calls.values())).number
    return f"before, call {number} was made {', but '.join(told)}"


def _sides(told: Iterable[tuple[What, int]]) -> dict[What, list[int]]:
    """Return of which ranks each thing is told."""
    sides: dict[What, list[int]] = {}
    for what, number in told:
        sides.setdefault(what, []).append(number)
    return sides


def _at(call: Call) -> str:
    return f" at {call.frame.short}" if call.frame else ""


def _sizes_differ(why: Cause) -> str:
    came, expected = why.sizes
    return (
        f"a message of {came} bytes came where one of {expected} was expected "
        "(a tensor or a piece of one): "
        f"the ranks bring tensors of different sizes to {why.name or 'one call'}"
    )


def _said_to_differ(why: Cause) -> str:
    return ", but ".join(
        f"rank {number} calls {call.name}"
        + (f" of {call.dtypes[0]} {list(call.shapes[0])}" if call.dtypes else "")
        for number, call in why.calls.items()
    )


def _parameters_differ(why: Cause) -> str:
    sides = _sides((count, number) for number, count in sorted(why.counts.items()))
    told = [f"{count} parameters on {ranks(on)}" for count, on in sides.items()]
    return f"the ranks give DDP different models: {', but '.join(told)}"


def _roots_differ(why: Cause) -> str:
    sides = _sides((each.root, each.rank) for each in why.stands)
    told = ", ".join(f"{root} on {ranks(on)}" for root, on in sides.items())
    call = why.stands[0].name
    return f"the ranks wait in {call} with different {why.name}: {told}"


def _passed_by(why: Cause) -> str:
    return (
        f"{_wait(why.waiting)}, which {ranks(why.ranks)} "
        f"{conjugate('have', why.ranks)} passed: "
        f"they do not all mean the same {why.name}"
    )


def _unable(why: Cause) -> str:
    told = [how_it_ended(s.end) if s.end else _halted(s) for s in why.stands]
    if len(told) > 1:
        told = [f"rank {s.rank} {t}" for s, t in zip(why.stands, told, strict=True)]
    if why.waiting:
        told.append(f"and {_wait(why.waiting)}")
    return ", ".join(told)


def _halted(one: Stand) -> str:
    return (
        "is stopped by a signal or a debugger"
        if one.watched
        else "is stopped (SIGSTOP)"
    )


def _absent(why: Cause) -> str:
    away = [s.rank for s in why.stands]
    left = all(s.state == "left" for s in why.stands)
    subject = f"{ranks(away)} " if len(away) > 1 else ""
    did = "left" if left else "not come"
    return f"{subject}{conjugate('have', away)} {did}, and {_wait(why.waiting)}"


def _alone(why: Cause) -> str:
    away = [s.rank for s in why.stands]
    did = "left" if all(s.state == "left" for s in why.stands) else "not come"
    return f"waits in {why.waiting[0].name}, but {ranks(away)} have {did}"


def _no_gradients(why: Cause) -> str:
    rest = [s.rank for s in why.waiting]
    return (
        f"stands at {_place(why.stands[0])}, and {ranks(rest)} "
        f"{conjugate('wait', rest)} for its gradients"
    )


def _apart(why: Cause) -> str:
    one_name = len({s.name for s in why.waiting}) == 1
    sides: dict[str, list[int]] = {}
    for s in why.waiting:
        group = f" of group {s.call.group}" if one_name and s.call else ""
        group = f" of {s.members}" if s.members else group
        sides.setdefault(f"{s.name}{group}", []).append(s.rank)
    told = ", ".join(f"{ranks(on)} in {call}" for call, on in sides.items())
    return f"the ranks wait in different calls: {told}"


def _lines_apart(why: Cause) -> str:
    (odd,), rest = why.stands, [s.rank for s in why.waiting]
    return (
        f"waits in {odd.name} at {_short(odd)}, but {ranks(rest)} "
        f"{conjugate('wait', rest)} in it at {_short(why.waiting[0])}"
    )


def _not_together(why: Cause) -> str:
    lines = list(dict.fromkeys(_short(s) for s in why.waiting))
    apart = f", at different lines: {' and '.join(lines[:SHOWN])}" * (len(lines) > 1)
    known = all(s.call for s in why.waiting)
    compares = "" if known else " (`ddp-lab torchrun` compares them)"
    return (
        f"every rank waits in {why.waiting[0].name}{apart}, but they do not meet: "
        f"groups, sizes or earlier calls may differ{compares}"
    )


def _busy(why: Cause) -> str:
    if why.name == "program":
        return f"the program stands at {_place(why.stands[0])}"
    sides = _sides((_place(each), each.rank) for each in why.stands)
    told = [f"{ranks(on)} {conjugate('stand', on)} at {p}" for p, on in sides.items()]
    if len(why.stands) == 1:
        told = [f"stands at {place}" for place in sides]
    return ", ".join([*told, f"and {OTHERS[why.name]}"])


def _lingers(why: Cause) -> str:
    told = [_still(s, s.frame.short if s.frame else "") for s in why.stands]
    if len(why.stands) == 1:
        return f"{_done(why.stands[0])} its main program, but {told[0]}"
    if len({*told}) > 1:
        on = [f"{t} on rank {s.rank}" for t, s in zip(told, why.stands, strict=True)]
        return f"the ranks have ended their main program, but {', '.join(on)}"
    late = ranks(s.rank for s in why.stands)
    same = told[0] if why.stands[0].name else "they do not end"
    return f"{late} have ended their main program, but {same}"


def _done(one: Stand) -> str:
    return f"{how_it_ended(one.end)} in" if one.end else "has ended"


def _still(one: Stand, place: str) -> str:
    if not one.name:
        return "it does not end"
    return f"{one.name} {f'is still at {place}' if place else 'has not ended'}"


def _world_in_a_world(why: Cause) -> str:
    return f"each of the {len(why.ranks)} ranks of torchrun starts ranks of its own"


def _wait(waiting: Sequence[Stand]) -> str:
    """Return `rank 0 waits in barrier`, or who waits in which call."""
    calls = _sides((each.name, each.rank) for each in waiting)
    return listed(
        f"{ranks(on)} {conjugate('wait', on)} in {name}" for name, on in calls.items()
    )


def _place(one: Stand) -> str:
    return "; ".join([_short(one), *beside(one)])


def _short(one: Stand) -> str:
    return one.frame.short if one.frame else NO_LINE


# --- what a few looks at a job show ---


DOES = {
    "stopped": "{is} stopped by a signal or a debugger",
    "left": "{is} not there any more",
    "elsewhere": "{stand} at {place}",
    "busy": "{is} busy at {place}",
    "moves": "{move}",
    "unseen": "cannot be looked at",
    "unknown": "cannot be looked at",
    "away": "{is} not on this machine",
}


def _does(why: Cause) -> str:
    clauses: list[str] = []
    for state, words in DOES.items():
        found = [s for s in why.stands if s.state == state]
        if found:
            on = [s.rank for s in found]
            subject = f"{ranks(on)} " if why.rank is None or clauses else ""
            verbs = {v: conjugate(v, on) for v in ("stand", "move")}
            verbs["is"] = conjugate("are", on)
            lines = list(dict.fromkeys(map(_short, found)))[:SHOWN]
            clauses.append(subject + words.format(place=" and ".join(lines), **verbs))
    waiting = [s for s in why.stands if s.state == "waits"]
    for name in dict.fromkeys(s.name for s in waiting):
        clauses.append(_wait([s for s in waiting if s.name == name]))
    *most, last = clauses
    return f"{', '.join(most)}, and {last}" if most else last


def _all_move(why: Cause) -> str:
    told = f"all {len(why.ranks)} ranks move" if len(why.ranks) > 1 else "it moves"
    slowest = [s.rank for s in why.stands]
    if slowest:
        told += f"; rank {slowest[0]} is the slowest: the others wait for it"
    return told


# --- nodes ---


def _node_lost(why: Cause) -> str:
    had = f", with {ranks(why.ranks)}" if why.ranks else ""
    how = "was asked to end" if why.code is None else ended_by(why.code)
    return f"has gone{had}: its torchrun {how}"


def _nodes_not_come(why: Cause) -> str:
    ((place, there),) = why.sides.items()
    return (
        f"{nodes(why.nodes)} {conjugate('have', why.nodes)} not come, and "
        f"{nodes(there)} {conjugate('wait', there)} at {place}"
    )


def _node_alone(why: Cause) -> str:
    missing = why.limit
    who = "the second node has" if missing == 1 else f"the other {missing} nodes have"
    return (
        f"{who} not come: this one waits at {why.places[0]}, with --nnodes {why.name}"
    )


def _nodes_not_met_again(why: Cause) -> str:
    told = f"the nodes do not meet again at {why.places[0]}"
    if why.nodes:
        told += f", where {nodes(why.nodes)} {conjugate('have', why.nodes)} come"
    return told


def _own_loopback(why: Cause) -> str:
    who = "a node " if why.node is None else ""
    return (
        f"{who}offers {why.places[0]}, where rank {why.ranks[0]} finds only its own "
        "machine"
    )


def _nodes_changed(why: Cause) -> str:
    come = why.sides.get("come", ())
    told = [f"{nodes(n)} {conjugate('have', n)} gone" for n in [why.nodes] if n]
    told += [f"{nodes(n)} {conjugate('have', n)} come" for n in [come] if n]
    return ", ".join(told)


# --- what is told beside the cause ---


def means(why: Cause, also: Iterable[Cause]) -> str | None:
    """Return what a cause means, and what else is known, in one line."""
    return "; ".join(filter(None, [_advice(why), *map(cause, also)])) or None


def _advice(why: Cause) -> str:
    """Return what is to be known, or done, about a trouble of nodes."""
    if why.kind is Kind.CUT_OFF:
        return f"by the event `cut node {why.node}`"
    if why.kind is Kind.NODES_NOT_MET_AGAIN:
        return OWN_STORE if why.name else ""
    if why.kind is Kind.NODE_SAID:
        return _known_as(why)
    if why.kind is Kind.SLOW_LINK:
        carried = float(why.limit) / 1000
        return f"nothing stood still: {carried:,.0f} KB crossed each link in a second"
    if why.kind is Kind.OWN_LOOPBACK:
        return "look at its GLOO_SOCKET_IFNAME, and at its host name in its /etc/hosts"
    if why.kind is Kind.NODES_NOT_MET:
        return "look at what that name means on each of them, and at firewalls"
    return ""


def _known_as(why: Cause) -> str:
    if why.name:
        return (
            f"that is: the disk is full, on which the lab keeps the output ({why.name})"
        )
    return f"that is: {why.symptom.means}" if why.symptom else ""


def _before(why: Cause) -> str:
    return f"before: {_of(why)}"


def _said(why: Cause) -> str:
    return f"rank {why.rank}: {shorten(_of(why))}"


def _printed(why: Cause) -> str:
    who = "it" if why.rank is None else f"rank {why.rank}"
    at = f", at {why.frame.short}" if why.frame else ""
    if why.name:
        return f"before, {why.name} of {who} failed: {shorten(why.error)}{at}"
    return f"before, {who} printed a traceback: {shorten(why.error)}{at}"


def _handled(why: Cause) -> str:
    at = f", from {why.frame.short}" if why.frame else ""
    return f"it left while it handled {shorten(why.error)}{at}"


def _not_met_again(why: Cause) -> str:
    store = f"; {OWN_STORE}" if why.name else ""
    of = shorten(_of(why))
    return f"torchrun restarted the ranks, which did not meet again: {of}{store}"


def _of(why: Cause) -> str:
    return cause(why.of) if why.of else ""


def _watched(why: Cause) -> str:
    """Return for how long nothing has moved, or what does."""
    held = f"for at least {duration(float(why.limit))}"
    states = {s.state for s in why.stands}
    if states & {"waits", "elsewhere"} and not states & {"moves", "busy"}:
        return f"nothing has moved {held}"
    if "busy" in states:
        return f"a long computation, or a loop without an end, {held}"
    if {"waits", "moves"} <= states:
        return f"those that wait have waited {held}; what moves may yet come"
    return ""


def duration(seconds: float) -> str:
    """Return `12 seconds`, `5 minutes` or `3 hours`: as much as is worth telling."""
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:.0f} {name}s"
    whole = max(int(seconds), 1)
    return f"{whole} second{'s' * (whole > 1)}"


# --- what is odd about a run that succeeds ---


def _left_early(why: Cause) -> str:
    whose = "its" if len(why.ranks) == 1 else "their"
    return (
        f"{ranks(why.ranks)} left before the end of {whose} program, by os._exit "
        "or for another program, so Python's own work at the end was not done"
    )


def _kept_group(why: Cause) -> str:
    return f"{ranks(why.ranks)} ended without dist.destroy_process_group()"


def _not_the_same(why: Cause) -> str:
    return f"not the same on all ranks: {_of(why)}"


# What the launcher itself has noticed of a run.
NOTES = {
    "cold": "not a warm start: {}",
    "logging": "the lab keeps the ranks' output itself, without {}",
    "not kept": "the long output is not kept: {}",
    "not played": "left out, because the nodes share one network: {}",
    "overdue": "torchrun had not ended long after its ranks, and was ended",
    "removed": "the log files of {} were removed meanwhile; what was printed is lost",
    "too late": "the run was over before this event: {}",
}


def note(what: str, of: Iterable[str] = ()) -> str:
    """Return a note of `NOTES`, and what it is about."""
    return NOTES[what].format(", ".join(of))


# --- where one rank stands ---


def of_rank(known: Cause | Stand, why: Cause | None = None) -> str:
    """Return what is told of a rank beside the cause `why`, which may tell it all."""
    if isinstance(known, Stand):
        if why and why.kind in WHOLE and [s.rank for s in why.stands] == [known.rank]:
            return now(known) if known.watched else ""
        return stand(known)
    return cause(known) if known.stands else shorten(cause(known))


def stand(one: Stand) -> str:
    """Return, say, `waits in send for rank 1 at sick.py:45 in ...`."""
    return f"{_stands(one)}{_process(one)}"


def _stands(one: Stand) -> str:
    at, seen = (f" at {one.frame.place}" if one.frame else ""), one.watched
    match one.state:
        case "waits":
            return f"waits in {one.call or one.name}{_peers(one)}{at}"
        case "left" if one.end:
            return how_it_ended(one.end)
        case "left" if seen:
            return "is not there: it has ended, or was never started"
        case "left":
            return "has left"
        case "stopped":
            return f"{_halted(one)}{at}"
        case "lingers":
            place = one.frame.place if one.frame else ""
            return f"{_done(one)} its main program, but {_still(one, place)}"
        case "serves":
            return "; ".join(beside(one))
        case "away":
            return "is not on this machine: `ddp-lab why` there tells"
        case "moves" if seen:
            more = " and more" if len(seen.places) > SHOWN else ""
            lines = f"at {', '.join(seen.places[-SHOWN:])}{more}"
            return f"moves: seen {lines if seen.places else 'in libraries only'}"
        case "busy" if seen:
            return f"is busy{at} ({seen.share:.0%} of a core)"
        case "unseen" if seen:
            return seen.trouble or "gives no stack"
        case "elsewhere" if seen:
            return f"stands{at or f' at {NO_LINE}'}"
        case "elsewhere":
            return "; ".join([f"stands{at}", *beside(one)])
    return f"last printed {one.printed!r}" if one.printed else "printed nothing"


NOW = {"elsewhere": "is in its own code", "lingers": "does not end"}


def now(one: Stand) -> str:
    """Return what a rank does, where a picture shows its line and its call."""
    if one.state == "waits":
        return f"waits in {one.name}{_peers(one)}"
    if one.state in NOW:
        return f"{NOW[one.state]}{_process(one)}"
    return stand(replace(one, frame=None))


def _peers(one: Stand) -> str:
    return f" for {ranks(one.peers)}" if one.peers else ""


def _process(one: Stand) -> str:
    """Return which process it is of those that were watched, and what is beside it."""
    if not one.watched or not one.watched.pid:
        return ""
    there = [(name.removeprefix("a "), f) for name, f in one.beside[:SHOWN] if f]
    more = "".join(f"\n    its {name} stands at {f.place}" for name, f in there)
    return f" [pid {one.watched.pid}]{more}"


def beside(one: Stand) -> list[str]:
    """Return where the other threads of a rank stand, and its processes."""
    return [f"{name} at {f.place}" if f else name for name, f in one.beside]


def how_it_ended(why: Cause | None) -> str:
    """Return how a rank has ended, after its name: `was ended by SIGKILL`."""
    if why is None:
        return "has left"
    if why.kind is Kind.SIGNAL:
        return ended_by(why.code or 0)
    if why.kind is Kind.EXIT:
        return f"has ended with exit code {why.code}"
    since = "".join(f", and {stand(each)}" for each in why.stands)
    return f"has raised {why.error}{since}"


# --- attempts ---


def earlier(found: Attempts | None) -> list[str]:
    """Return what is told of the attempts before the last one, which failed too."""
    if found is None:
        return []
    if not found.same:
        return _ways(found)
    if found.same == found.count - 1:
        many = "both attempts" if found.count == 2 else f"all {found.count} attempts"
        return [f"the same error at the same line in {many}: {BUG}"]
    same = f"the same as now in {found.same + 1} of {found.count} attempts: {BUG}"
    return [*_ways(found), same]


def _restarted(why: Cause) -> str:
    """Return the note of a run that succeeded after its ranks were started again."""
    assert why.attempts
    count = why.attempts.count - 1
    times = TIMES.get(count, f"{count} times")
    return f"restarted {times}: {'; '.join(_ways(why.attempts))}"


def _ways(found: Attempts) -> list[str]:
    told = [
        f"{_numbers(numbers)} of {found.count} {_brief(why)}"
        for numbers, why in found.ways
    ]
    rest = found.count - 1 - sum(len(numbers) for numbers, _ in found.ways)
    return [*told, f"{rest} more failed in other ways"] if rest else told


def _brief(why: Cause) -> str:
    """Return how an attempt ended."""
    if why.kind is Kind.NODES_CHANGED:  # which is no failure of the attempt's own
        return f"ended: {cause(why)}"
    at = f" at {why.frame.place}" if why.frame else ""
    return f"failed: {who(why, {})}: {shorten(cause(why))}{at}"


def _numbers(numbers: Sequence[int]) -> str:
    """Return `attempt 1`, `attempts 1 and 3`, or `attempts 1 to 9`."""
    if len(numbers) == 1:
        return f"attempt {numbers[0]}"
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and [*numbers] == [*range(first, last + 1)]:
        return f"attempts {first} to {last}"
    return f"attempts {listed(map(str, numbers))}"


SENTENCES: dict[Kind, Callable[[Cause], str]] = {
    kind: globals()[f"_{kind.name.lower()}"]
    for kind in Kind
    if f"_{kind.name.lower()}" in globals()
}

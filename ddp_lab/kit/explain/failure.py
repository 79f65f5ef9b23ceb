"""Find out why a run failed: which rank, which line, and in which words.

Who failed by itself comes first (see ends.py). Whoever only noticed that somebody else
had gone, or waited for it in vain, comes last; and if nobody else is left, the calls
and the stacks tell (see hang.py).
"""

import re
import time
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from ddp_lab.kit.explain import attempts, ends, hang, nodes, symptoms
from ddp_lab.kit.explain.attempts import Attempt
from ddp_lab.kit.explain.diagnosis import odd_one
from ddp_lab.kit.explain.ends import HEADSTART, End
from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record import stacks
from ddp_lab.kit.record.files import shorten
from ddp_lab.kit.record.logs import RankLog, RunLog, TorchrunLog

SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, "
    r")?OpType=(\w+)(?:, TensorShape=\[(.*?)\], TensorDtypes=(\w+))?"
)
STOPPED = {
    "timeout": "no end after {0:g} seconds; all processes were stopped",
    "interrupt": "stopped by hand; all processes were ended",
    "output": "more than {0:,} bytes of output; all processes were stopped",
    # Nobody asked for these: the system for want of memory, or somebody by hand.
    "guard": "the guard of this run was ended by {0} from outside; all processes were "
    "stopped",
    "torchrun": "torchrun itself was ended by {0} from outside, and its ranks with it",
    "nodes": "what plays the nodes on this machine (room.py, or its switch.py) was "
    "ended by {0} from outside, and the nodes with it",
    "srun": "srun was ended by {0} from outside, and the ranks with it",
    "slurm": "ended by SLURM: {0}",
    "warm": "the warm process, of which this run is a fork, was ended by {0} from "
    "outside, and the run with it; the next run starts a new one",
}


@dataclass(frozen=True)
class Failure:
    """Why a run failed."""

    kind: str
    """"exception", "signal", "exit"; "timeout", "interrupt" or "output" if the run was
    stopped; "guard", "torchrun", "nodes", "srun" or "warm" if a signal from outside has
    ended what the ranks depend on; "slurm" if SLURM has ended them; "launch" if no rank
    was started; "node" if a node was lost, or the nodes did not come together."""
    rank: int | None
    """The rank that failed first; None when no rank is to blame alone."""
    cause: str
    """One line: the exception, the signal, the exit code, or who waits for whom."""
    where: str | None = None
    """The program's own line, as in `sick.py:45 in pass_on`."""
    line: int | None = None
    """Its number."""
    symptom: Symptom | None = None
    """What this is called, if it is a known way to go wrong."""
    means: str | None = None
    """What the cause usually means, in one sentence."""
    traceback: str = field(default="", repr=False)
    others: dict[int, str] = field(default_factory=dict)
    """What is known of the other ranks: their own failures and, if somebody waited in
    vain, where each rank stood. A rank that only lost its connection is left out."""
    stands: list[hang.Stand] = field(default_factory=list, repr=False)
    """Where each rank stood when it was last seen, if the run stood still."""
    earlier: list[str] = field(default_factory=list)
    """How the attempts before this one failed, if torchrun has restarted the ranks."""
    places: dict[int, str] = field(default_factory=dict)
    """Of each rank on several nodes where it is: `node 1, local 0`."""
    node: int | None = None
    """The node that is to blame, if no rank is."""

    def name(self, rank: int) -> str:
        """Return `rank 3`, and where it is if there are several nodes."""
        place = self.places.get(rank)
        return f"rank {rank} ({place})" if place else f"rank {rank}"

    def report(self, traceback: bool = True) -> str:
        """Return the cause, then the evidence, then the other ranks."""
        who = "the run" if self.node is None else f"node {self.node}"
        who = who if self.rank is None else self.name(self.rank)
        text = [f"{who}: {self.cause}"]
        if self.where:
            text.append(f"  at {self.where}")
        if self.means:
            text.append(f"  {self.means}")
        if traceback and self.traceback:
            text.append("\n" + self.traceback.rstrip() + "\n")
        text += [f"  {self.name(rank)}: {what}" for rank, what in self.others.items()]
        text += [f"  {line}" for line in self.earlier]
        return "\n".join(text)


def find_failure(
    log: RunLog, code: int, stopped: str | None, limit: float | str
) -> tuple[Failure | None, list[int | None]]:
    """Return why the run failed, if it did, and the exit code of each rank.

    A rank that was aborted after it had done everything has not failed: a plain exit
    of Python sometimes ends that way under gloo's threads (see rank.py).

    Args:
        log: what the run left behind.
        code: exit code of the whole command.
        stopped: why the launcher has ended the run, a key of `STOPPED`, if it has.
        limit: the seconds of silence or the bytes of output that it was allowed, or the
            signal from outside.
    """
    codes = [rank.code for rank in log.ranks]
    if stopped:
        failure = _stopped(log.ranks, stopped, limit)
    elif not log.failed(code):
        return None, [code for _ in log.ranks]
    elif log.ranks and all(rank.finished for rank in log.ranks):
        return None, codes
    else:
        codes = [code] if codes == [None] else codes
        failure = _first_failure(log, code, codes)
        failure = replace(failure, rank=log.culprit(failure.rank))
    if log.agents:
        failure = _of_nodes(failure, log, codes, stopped)
    if log.full_disk:
        failure = _on_a_full_disk(failure, log.full_disk)
    before = _earlier(log)
    tried, apart = [_attempt(each) for each in before], _meets(failure)
    told = attempts.before(tried, _attempt(failure), may_be_a_bug=not apart)
    met = [each for each in before if not _meets(each)]
    if met and apart:  # which is no failure of the program's
        failure = replace(met[-1], means=attempts.never_met(failure.cause))
    return replace(failure, earlier=told, places=log.places), codes


def _meets(failure: Failure) -> bool:
    """Tell whether a run failed because its ranks did not find each other."""
    names = [stand.name for stand in failure.stands]
    return "init_process_group" in "".join([failure.where or "", *names])


def _earlier(log: RunLog) -> list[Failure]:
    """Return why each attempt failed after which torchrun restarted the ranks."""
    found = []
    for ranks, change in zip_longest(log.earlier, log.changes):
        failure = _first_failure(TorchrunLog(ranks), 1, [rank.code for rank in ranks])
        own = failure.rank is not None and not ranks[failure.rank].asked
        gone = change and failure.rank in change.ranks
        if change and change.words and (not own or gone):
            failure = Failure("node", None, change.words)
        found.append(failure)
    return found


def _attempt(failure: Failure) -> Attempt:
    said = failure.cause, failure.where, failure.line
    return Attempt(failure.kind, failure.rank, *said)


def find_notes(log: RunLog) -> list[str]:
    """Return what is wrong with a run although every rank has ended well."""
    left = [rank.end or {} for rank in log.ranks]
    early = [rank for rank, end in enumerate(left) if end.get("early")]
    stayed = [
        rank
        for rank, end in enumerate(left)
        if end and rank not in early and not end["left_group"]
    ]
    notes = nodes.odd(log.agents)
    notes += attempts.restarted([_attempt(each) for each in _earlier(log)])
    if early:
        whose = "its" if len(early) == 1 else "their"
        notes.append(
            f"{hang.ranks(early)} left before the end of {whose} program, by os._exit "
            "or for another program, so Python's own work at the end was not done"
        )
    if stayed:
        notes.append(f"{hang.ranks(stayed)} ended without dist.destroy_process_group()")
    if len(left) > 1 and all(end.get("joined") is False for end in left):
        notes.append(
            f"no rank has joined a process group: {len(left)} copies of the program "
            "have run side by side, and none knew of the others"
        )
    if found := hang.mismatch([rank.calls for rank in log.ranks]):
        notes.append(f"not the same on all ranks: {found.cause}")
    return notes


def _of_nodes(
    failure: Failure, log: RunLog, codes: list[int | None], stopped: str | None
) -> Failure:
    """Return the failure of a node, if it comes before what was found of the ranks."""
    if stopped not in (None, "timeout"):
        return failure
    found = _ends(log.ranks, codes)
    own = [e.time for e in found.values() if not e.is_victim() and not e.asked]
    lost = nodes.gone(log.agents)
    early = lost.time - (0 if lost.exact else HEADSTART) if lost else 0.0
    if lost and not any(time < early for time in own):
        return _node_failed(failure, lost)
    noticed = min((end.time for end in found.values()), default=time.time())
    trouble = None
    if not own and (failure.rank is None or found):
        trouble = nodes.cut_off(log.agents, noticed)
        words = {rank: end.words for rank, end in found.items()}
        trouble = trouble or nodes.own_loopback(log.agents, words)
    if not log.ranks:
        trouble = trouble or nodes.never_met(log.agents)
    elif stopped and not own and None not in codes:
        trouble = trouble or nodes.never_again(log.agents)
    if stopped and not own:
        trouble = trouble or nodes.slow(log.agents)
    failure = _node_failed(failure, trouble) if trouble else failure
    differ = nodes.differing_programs(log.agents)
    means = "; ".join(filter(None, [differ, failure.means])) or None
    return replace(failure, means=means)


def _node_failed(failure: Failure, trouble: nodes.Trouble) -> Failure:
    """Return the failure of a node; what its ranks show is kept beside it."""
    stopped = STOPPED["timeout"].partition("{")[0]
    said = [w for w in (failure.cause, failure.means) if w and stopped in w]
    means = [trouble.means, *said]
    others = {r: w for r, w in failure.others.items() if r not in trouble.ranks}
    return replace(
        failure,
        kind="node",
        rank=None,
        node=trouble.node,
        cause=trouble.cause,
        where=None,
        line=None,
        symptom=trouble.symptom,
        means="; ".join(filter(None, means)) or None,
        traceback="",
        others=others,
    )


def _first_failure(log: RunLog, code: int, codes: list[int | None]) -> Failure:
    """Return the failure that came first: that of a rank, or of the command itself."""
    found = _ends(log.ranks, codes)
    if not found or _launcher_was_first(log, code, found):
        return _launch_failure(log.stderr, code)
    first = _first(found)
    if found[first].lost_peer() or found[first].out_of_step():
        return _not_together(log.ranks, first, found)
    return _failed_by_itself(log.ranks, first, found)


def _launcher_was_first(log: RunLog, code: int, found: dict[int, End]) -> bool:
    """Tell whether torchrun failed, was told to end or was killed while all went well.

    Its report of ranks that have failed is no failure of its own.
    """
    if code < 0:  # then nobody asks the ranks, and the guard ends them
        return all(end.asked or "SIGTERM" in end.cause for end in found.values())
    error = stacks.last_error(log.stderr)
    its_own = bool(error) and "ChildFailedError" not in error
    return its_own and all(end.asked for end in found.values())


def _ends(logs: list[RankLog], codes: list[int | None]) -> dict[int, End]:
    """Return by rank how it failed, of those that did."""
    all_ends = {rank: ends.find(log, codes[rank]) for rank, log in enumerate(logs)}
    found = {rank: end for rank, end in all_ends.items() if end}
    # Those that leave because another one has gone do so alike.
    odd = odd_one({rank: end.cause for rank, end in found.items() if end.quietly})
    if odd is not None:
        found[odd] = replace(found[odd], quietly=False)
    return found


def _first(found: dict[int, End]) -> int:
    """Return the rank that failed first.

    A size that gloo did not expect comes before whatever was computed from it.
    """
    return min(
        found, key=lambda r: (not SIZES.search(found[r].words), found[r].order())
    )


def _failed_by_itself(
    logs: list[RankLog], first: int, found: dict[int, End]
) -> Failure:
    end = found[first]
    others = {rank: other for rank, other in found.items() if rank != first}
    failure = Failure(end.kind, first, end.cause, *_place(end.frame))
    failure = replace(failure, traceback=end.traceback, others=_failures(others))
    if symptoms.find(end.cause) is Symptom.LATE_CALL:
        failure = replace(failure, others=_at_work(logs, first) | failure.others)
    shared = hang.has_program(logs)  # then nobody knows which rank has written what
    printed = logs[0 if shared else first].tracebacks
    if end.kind == "exit" and printed:
        whole = [each for each in printed if stacks.last_error(each)]  # the last is cut
        who = "a rank" if shared else f"rank {first}"
        failure = replace(failure, means=_printed(who, (whole or printed)[-1]))
    elif end.kind == "exit" and end.before:
        what = shorten(end.before[0])
        failure = replace(failure, means=f"it left while it handled {what}")
    return _known(failure, logs)


def _at_work(logs: list[RankLog], first: int) -> dict[int, str]:
    """Return where the threads of the other ranks stand, which answer remote calls."""
    told = {rank: hang.beside(log) for rank, log in enumerate(logs) if rank != first}
    return {rank: "; ".join(each) for rank, each in told.items() if each}


def _failures(found: dict[int, End]) -> dict[int, str]:
    """Return what is told of the other ranks' failures, if they were their own."""
    return {
        rank: shorten(end.cause)
        for rank, end in sorted(found.items())
        if not end.lost_peer() or end.unwilling()
    }


def _stopped(logs: list[RankLog], stopped: str, limit: float | str) -> Failure:
    """Return the failure of a run that the launcher has ended.

    What a rank said before anybody was ended comes first.
    """
    stands = hang.find_stands(logs)
    others = {stand.rank: _stand(stand, logs[stand.rank]) for stand in stands}
    cause = STOPPED[stopped].format(limit)
    found = _ends(logs, [log.code for log in logs])
    own = {r: end for r, end in found.items() if not end.is_victim() and end.certain}
    if own:
        first = _first(own)
        failure = _failed_by_itself(logs, first, found)
        for rank, end in found.items():
            if end.unwilling():
                failure.others[rank] = f"{end.cause}; it {others[rank]}"
        others = {r: what for r, what in others.items() if r != first}
        known = (failure.means, cause, hang.program_stands(logs))
        means = "; ".join(filter(None, known))
        return replace(
            failure, others=others | failure.others, means=means, stands=stands
        )
    failure = Failure(stopped, None, cause, others=others, stands=stands)
    diagnosis = hang.diagnose(logs, stands) if stopped == "timeout" else None
    if diagnosis:
        failure = _diagnosed(failure, diagnosis, means=cause)
    return _with_traceback(failure, logs) if stopped == "timeout" else failure


def _with_traceback(failure: Failure, logs: list[RankLog]) -> Failure:
    """Add to a standstill what a rank has printed before it, which often explains it.

    A thread may have died for which the main thread waits, or an exception was caught
    and logged, and the rank is on a way of its own.
    """
    told = {rank: log.tracebacks[-1] for rank, log in enumerate(logs) if log.tracebacks}
    if not told:
        return failure
    shared = hang.has_program(logs)  # then nobody knows which rank has written it
    if failure.rank is None and len(told) == 1 and not shared:
        stand = failure.stands[min(told)]
        where, line = _place(stand.frame)
        failure = replace(failure, rank=stand.rank, where=where, line=line)
    rank = failure.rank if failure.rank in told else min(told)
    who = "a rank" if shared and rank == 0 else f"rank {rank}"
    means = "; ".join(filter(None, [_printed(who, told[rank]), failure.means]))
    return replace(failure, means=means, traceback=told[rank])


def _printed(who: str, traceback: str) -> str:
    """Return one sentence on a traceback that was not the rank's end."""
    error = stacks.last_error(traceback) or traceback.strip().splitlines()[0]
    frame = stacks.own(stacks.from_text(traceback))
    at = f", at {frame.short}" if frame else ""
    return f"before, {who} printed a traceback: {shorten(error)}{at}"


def _diagnosed(failure: Failure, found: hang.Diagnosis, means: str) -> Failure:
    where, line = _place(found.frame)
    return replace(
        failure,
        rank=found.rank,
        cause=found.cause,
        where=where,
        line=line,
        symptom=found.symptom,
        means=means,
    )


def _not_together(logs: list[RankLog], first: int, found: dict[int, End]) -> Failure:
    """Return the failure of a run in which every rank that complains is a victim."""
    said = found[first]
    stands = hang.find_stands(logs)
    too_small = first if SIZES.search(said.words) else None
    diagnosis = hang.mismatch([log.calls for log in logs], too_small)
    if not (diagnosis and diagnosis.symptom is Symptom.DIFFERENT_TENSORS):
        diagnosis = _told_by_torch(said, stands[first].name)
        diagnosis = diagnosis or hang.diagnose(logs, stands)
    if not diagnosis:
        return replace(_failed_by_itself(logs, first, found), stands=stands)
    others = {stand.rank: _stand(stand, logs[stand.rank]) for stand in stands}
    failure = Failure(said.kind, first, said.cause, others=others, stands=stands)
    means = f"rank {first}: {shorten(said.cause)}"
    return _diagnosed(replace(failure, traceback=said.traceback), diagnosis, means)


def _told_by_torch(said: End, name: str) -> hang.Diagnosis | None:
    """Return the cause that gloo, or TORCH_DISTRIBUTED_DEBUG=DETAIL, has printed."""
    if sizes := SIZES.search(said.words):
        cause = f"{sizes[1]} bytes came where {sizes[2]} were expected: "
        cause += f"the ranks bring tensors of different sizes to {name or 'one call'}"
        return hang.Diagnosis(Symptom.DIFFERENT_TENSORS, cause, None, said.frame)
    sides = {rank: call for rank, *call in FINGERPRINT.findall(said.words)}
    if len(sides) == 2:
        calls = [
            f"rank {rank} calls {name.lower()}"
            + (f" of {dtype} [{shape}]" if dtype else "")
            for rank, (name, shape, dtype) in sides.items()
        ]
        same = len({name for name, *_ in sides.values()}) == 1
        symptom = Symptom.DIFFERENT_TENSORS if same else Symptom.DIFFERENT_CALLS
        return hang.Diagnosis(symptom, ", but ".join(calls), None, said.frame)
    return None


def _known(failure: Failure, logs: list[RankLog]) -> Failure:
    """Add what the cause usually means, and calls that differed before it came up."""
    symptom = symptoms.find(failure.cause)
    if symptom is Symptom.VICTIM and failure.rank is not None:
        symptom = None if logs[failure.rank].has_own_words else symptom
    if symptom:  # a signal's usual meaning is part of the cause already
        means = None if failure.kind == "signal" else f"that is: {symptom.means}"
        return replace(failure, symptom=symptom, means=means)
    if found := hang.mismatch([log.calls for log in logs]):
        return replace(failure, symptom=found.symptom, means=f"before: {found.cause}")
    return failure


def _on_a_full_disk(failure: Failure, folder: Path) -> Failure:
    """Add that the disk with the logs is full, where that explains the failure."""
    said = failure.symptom or failure.kind not in ("exit", "launch")
    if said and failure.symptom is not Symptom.DISK_FULL:
        return failure
    means = f"that is: the disk is full, on which the lab keeps the output ({folder})"
    return replace(failure, symptom=Symptom.DISK_FULL, means=means)


def _launch_failure(stderr: str, code: int) -> Failure:
    """Return the failure of a run that started no rank, or whose ranks left no word."""
    cause = stacks.last_error(stderr)
    if not cause:
        lines = [line for line in stderr.splitlines() if line.strip()]
        cause = lines[-1].strip() if lines else f"exit code {code}"
    if code < 0:
        cause = f"the launcher was ended by {ends.signal_and_sender(code)}"
    return _known(Failure("launch", None, cause, traceback=stderr), [])


def _place(frame: stacks.Frame | None) -> tuple[str | None, int | None]:
    return (frame.place, frame.line) if frame else (None, None)


def _stand(stand: hang.Stand, log: RankLog) -> str:
    """Return where a rank stood, or at least what it printed last."""
    if stand.state != "unknown":
        return str(stand)
    return f"last printed {log.lines[-1]!r}" if log.lines else "printed nothing"

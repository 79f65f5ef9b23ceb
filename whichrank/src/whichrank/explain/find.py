"""Find out why a run failed: which rank, which line, and in which words.

Who failed by itself comes first (see ends.py). Whoever only noticed that somebody else
had gone, or waited for it in vain, comes last; and if nobody else is left, the calls
and the stacks tell (see hang.py).
"""

import signal
import time
from dataclasses import replace
from itertools import zip_longest

from whichrank.explain import attempts, ends, hang, nodes, stands, symptoms
from whichrank.explain.cause import MEETING, Cause, Stand, odd_one
from whichrank.explain.causes.beside import (
    Complaint,
    KeptGroup,
    KnownAs,
    LeftEarly,
    NotJoined,
    NotMetAgain,
    NotTheSame,
    Printed,
    Restarted,
)
from whichrank.explain.causes.ended import (
    Exited,
    Raised,
    Signalled,
    Stopped,
)
from whichrank.explain.causes.node import NodesChanged
from whichrank.explain.causes.waiting import (
    Apart,
    CallsDiffer,
    SizesDiffer,
)
from whichrank.explain.ends import Verdict
from whichrank.explain.failure import Failure
from whichrank.explain.states import Elsewhere, Halted
from whichrank.explain.symptoms import Symptom
from whichrank.record import stacks
from whichrank.record.heard import listen
from whichrank.record.logs import ProgramLog, RankLog, RunLog, TorchrunLog
from whichrank.record.torch_words import REPORT, Blames, signal_obeyed
from whichrank.record.words import signal_name

Verdicts = dict[int, Verdict]  # of the ranks that have failed


def find_failure(
    log: RunLog, code: int, stopped: str | None, limit: float | str
) -> tuple[Failure | None, list[int | None]]:
    """Return why the run failed, if it did, and the exit code of each rank.

    A rank that was aborted after it had done everything has not failed: a plain exit
    of Python sometimes ends that way under gloo's threads (see program.py).

    Args:
        log: what the run left behind.
        code: exit code of the whole command.
        stopped: why the launcher has ended the run, if it has: a key of
            `causes.ended.STOPPED`.
        limit: the seconds of silence or the bytes of output that it was allowed, or the
            signal from outside.
    """
    if isinstance(log, ProgramLog):
        return _of_program(log, code, stopped, limit)
    if stopped:
        failure = _stopped(log.ranks, stopped, limit)
    elif code == 0:
        return None, [code for _ in log.ranks]
    elif log.ranks and all(rank.finished for rank in log.ranks):
        return None, [rank.code for rank in log.ranks]
    else:
        if [rank.code for rank in log.ranks] == [None]:
            log = log.with_code(code)
        failure = _first_failure(log, code)
    if log.agents:
        failure = _of_nodes(failure, log, stopped)
    before = _earlier(log)
    met = [each for each in before if not _meeting(each)]
    # A failed meeting is no failure of the program's, and so never a bug.
    last = None if _meeting(failure) else failure.why
    ways = attempts.compare([each.why for each in before], last)
    if met and last is None:
        again = NotMetAgain(of=failure.why, shares_store=log.shares_store)
        failure = replace(met[-1], also=(again,))
    codes = [rank.code for rank in log.ranks]
    return replace(failure, attempts=ways, places=log.places), codes


def _of_program(
    log: ProgramLog, code: int, stopped: str | None, limit: float | str
) -> tuple[Failure | None, list[int | None]]:
    """Return why a program of plain python failed, as `find_failure` does.

    It is told in the program's own words: of the ranks that it may have started,
    nothing is known but their lines.
    """
    codes = [None if stopped else code for _ in log.ranks]
    program = log.with_code(code).ranks[0]
    if stopped and not program.raised:
        return _stopped(log.ranks, stopped, limit), codes
    verdict = ends.of_rank(program)
    if code == 0 or verdict is None:
        return None, codes
    failure = _failed_by_itself([program], 0, {0: verdict})
    also = [replace(each, rank=None) for each in failure.also]
    also += [Stopped(by=stopped, limit=limit)] if stopped else []
    why = replace(failure.why, rank=None)
    return replace(failure, why=why, also=tuple(also)), codes


def _meeting(failure: Failure) -> bool:
    """Tell whether a run failed because its ranks did not find each other."""
    raised = isinstance(failure.why, Raised) and failure.why.inside == MEETING
    return raised or any(stand.name == MEETING for stand in failure.stands)


def _earlier(log: RunLog) -> list[Failure]:
    """Return why each attempt failed after which torchrun restarted the ranks."""
    failures = []
    for ranks, change in zip_longest(log.earlier, log.changes):
        failure = _first_failure(TorchrunLog(ranks), 1)
        own = failure.rank is not None and not ranks[failure.rank].asked
        gone = change and failure.rank in change.ranks
        if change and (change.lost or change.come) and (not own or gone):
            changed = NodesChanged(gone=change.lost, come=change.come)
            failure = Failure("node", changed)
        failures.append(failure)
    return failures


def find_notes(log: RunLog) -> list[Cause]:
    """Return what is odd about a run although every rank has ended well."""
    left = [rank.end for rank in log.ranks]
    early = tuple(rank for rank, end in enumerate(left) if end and end.early)
    stayed = tuple(
        rank
        for rank, end in enumerate(left)
        if end and not end.early and not end.left_group
    )
    notes: list[Cause] = []
    if before := attempts.compare([each.why for each in _earlier(log)]):
        notes.append(Restarted(attempts=before))
    notes += [LeftEarly(ranks=early)] if early else []
    notes += [KeptGroup(ranks=stayed)] if stayed else []
    if len(left) > 1 and all(end and end.joined is False for end in left):
        notes.append(NotJoined(copies=len(left)))
    if difference := hang.find_difference([rank.calls for rank in log.ranks]):
        notes.append(NotTheSame(of=difference))
    return notes


def _of_nodes(failure: Failure, log: RunLog, stopped: str | None) -> Failure:
    """Return the failure of a node, if it comes before what the ranks show."""
    if stopped not in (None, "timeout"):
        return failure
    by_rank = _verdicts(log.ranks)
    own = [e.time for e in by_rank.values() if not e.is_victim]
    lost = nodes.gone(log.agents)
    if lost and not any(time < lost[1] for time in own):
        return _node_failed(failure, lost[0])
    noticed = min((v.time for v in by_rank.values()), default=time.time())
    trouble = None
    if not own and (failure.rank is None or by_rank):
        trouble = nodes.cut_off(log.agents, noticed)
        heard = {rank: verdict.heard for rank, verdict in by_rank.items()}
        trouble = trouble or nodes.own_loopback(log.agents, heard)
    if not log.ranks:
        trouble = trouble or nodes.never_met(log.agents)
    return _node_failed(failure, trouble) if trouble else failure


def _node_failed(failure: Failure, trouble: Cause) -> Failure:
    """Return the failure of a node; what its ranks show is kept beside it."""
    known = [failure.why, *failure.also]
    timeout = (c for c in known if isinstance(c, Stopped) and c.by == "timeout")
    lost = getattr(trouble, "ranks", ())
    others = {r: known for r, known in failure.by_rank.items() if r not in lost}
    of_node = Failure("node", trouble, tuple(timeout), by_rank=others)
    return replace(of_node, stands=failure.stands)


def _first_failure(log: RunLog, code: int) -> Failure:
    """Return the failure that came first: that of a rank, or of the command itself."""
    by_rank = _verdicts(log.ranks)
    if not by_rank or _launcher_was_first(log, code, by_rank):
        if log.ranks and (by := signal_obeyed(log.stderr)):
            asked = _stopped(log.ranks, "asked", signal_name(by))
            return replace(asked, kind="torchrun")
        return _launch_failure(log.stderr, code)
    first = _first(by_rank)
    if by_rank[first].is_victim and not log.agents:
        # A signal may have ended one before torchrun's request could reach it.
        for rank, verdict in by_rank.items():
            left, by_signal = log.ranks[rank].exit, isinstance(verdict.cause, Signalled)
            if by_signal and left and verdict.time < (left.asked or 0):
                by_rank[rank] = replace(verdict, asked=False)
        first = _first(by_rank)
    if by_rank[first].is_victim:
        return _not_together(log.ranks, first, by_rank)
    failure = _with_late(_failed_by_itself(log.ranks, first, by_rank), log.ranks)
    if failure.by_chance and not failure.symptom:  # why, one may have printed before
        return replace(_with_traceback(failure, log.ranks), traceback=failure.traceback)
    return failure


def _with_late(failure: Failure, logs: list[RankLog]) -> Failure:
    """Add where those stood for whom the rank that failed may have waited.

    It has a call that is not done, and a watchdog of its own may have lost patience.
    """
    if failure.rank is None or all(call.done for call in logs[failure.rank].calls):
        return failure
    away = [s for s in stands.find_stands(logs) if isinstance(s, Elsewhere | Halted)]
    late: dict[int, Cause | Stand] = {stand.rank: stand for stand in away}
    return replace(failure, by_rank=late | failure.by_rank)


def _launcher_was_first(log: RunLog, code: int, by_rank: Verdicts) -> bool:
    """Tell whether torchrun failed, was told to end or was killed while all went well.

    Its report of ranks that have failed is no failure of its own.
    """
    if code < 0:  # then nobody asks the ranks, and the guard ends them
        asked = (Signalled, -signal.SIGTERM)
        return all(v.asked or v.cause.way == asked for v in by_rank.values())
    error = stacks.last_error(log.stderr)
    its_own = bool(error) and REPORT not in error
    return its_own and all(verdict.asked for verdict in by_rank.values())


def _verdicts(logs: list[RankLog]) -> Verdicts:
    """Return by rank how it failed, of those that did."""
    of_all = {rank: ends.of_rank(log) for rank, log in enumerate(logs)}
    return {rank: verdict for rank, verdict in of_all.items() if verdict}


def _first(by_rank: Verdicts) -> int:
    """Return the rank that failed first.

    A size that gloo did not expect comes before whatever was computed from it.
    """
    return min(
        by_rank, key=lambda rank: (not by_rank[rank].heard.sizes, by_rank[rank].order())
    )


def _failed_by_itself(logs: list[RankLog], first: int, by_rank: Verdicts) -> Failure:
    verdict = by_rank[first]
    others: dict[int, Cause | Stand] = _failures(by_rank, first)
    symptom = _symptom(verdict.cause, logs[first])
    why = replace(verdict.cause, rank=first, symptom=symptom)
    also = _also(verdict, first, logs, symptom)
    if also and isinstance(also[0], NotTheSame):  # a wrong sum, say, comes of it
        why = replace(why, symptom=also[0].of.symptom)
    return Failure(_kind(why), why, also, verdict.traceback, others)


def _kind(why: Cause) -> str:
    """Return how a rank has ended, as `Failure.kind` has it."""
    if isinstance(why, Raised):
        return "exception"
    return "exit" if isinstance(why, Exited) else "signal"


def _also(
    verdict: Verdict, first: int, logs: list[RankLog], symptom: Symptom | None
) -> tuple[Cause, ...]:
    """Return what else is known of a rank that failed."""
    if symptom:  # a signal's usual meaning is part of the cause already
        by_signal = isinstance(verdict.cause, Signalled)
        return () if by_signal else (KnownAs(symptom=symptom),)
    if difference := hang.find_difference([log.calls for log in logs]):
        return (NotTheSame(of=difference, failed=True),)
    printed = logs[first].other_traceback
    left = isinstance(verdict.cause, Exited)
    return (_printed(first, printed),) if left and printed else ()


def _symptom(cause: Cause, log: RankLog | None = None) -> Symptom | None:
    """Return what it is called that a rank, or the launcher, has failed by."""
    if isinstance(cause, Signalled):
        return symptoms.of_signal(-cause.code)
    words = cause.error if isinstance(cause, Raised) else getattr(cause, "words", "")
    symptom = symptoms.in_words(words)
    own = symptom is Symptom.VICTIM and log and log.heard.blames is not Blames.GONE
    return None if own else symptom


def _failures(by_rank: Verdicts, first: int) -> dict[int, Cause | Stand]:
    """Return the other ranks' failures, if they were their own."""
    return {
        rank: verdict.cause
        for rank, verdict in sorted(by_rank.items())
        if rank != first and verdict.blames is not Blames.GONE
    }


def _stopped(logs: list[RankLog], stopped: str, limit: float | str) -> Failure:
    """Return the failure of a run that the launcher has ended.

    What a rank said before anybody was ended comes first.
    """
    stood = stands.find_stands(logs)
    stop = Stopped(by=stopped, limit=limit)
    others: dict[int, Cause | Stand] = {stand.rank: stand for stand in stood}
    by_rank = _verdicts(logs)
    if own := {rank: v for rank, v in by_rank.items() if not v.is_victim}:
        first = _first(own)
        failure = _failed_by_itself(logs, first, by_rank)
        others.pop(first)
        also = (*failure.also, stop)
        return replace(
            failure, by_rank=others | failure.by_rank, also=also, stands=stood
        )
    failure = Failure(stopped, stop, by_rank=others, stands=stood)
    if stopped != "timeout":
        return failure
    if why := hang.diagnose(logs, stood):
        failure = replace(failure, why=why, also=(stop,))
    return _with_traceback(failure, logs)


def _with_traceback(failure: Failure, logs: list[RankLog]) -> Failure:
    """Add to a standstill, or what came of it, what a rank has printed before it.

    A thread may have died for which the main thread waits, or an exception was caught
    and logged. It is a line beside, and blames nobody: a metrics server that refuses
    leaves a traceback as well.
    """
    tracebacks = {
        rank: traceback
        for rank, log in enumerate(logs)
        if (traceback := log.other_traceback) and not listen(traceback).gave_up
    }
    if not tracebacks:
        return failure
    rank = failure.rank if failure.rank in tracebacks else min(tracebacks)
    also = (_printed(rank, tracebacks[rank]), *failure.also)
    return replace(failure, also=also, traceback=tracebacks[rank])


def _printed(rank: int, traceback: str) -> Printed:
    """Return a traceback that was not the rank's end."""
    error = stacks.last_error(traceback) or traceback.strip().splitlines()[0]
    frame = stacks.own(stacks.from_text(traceback))
    return Printed(rank=rank, frame=frame, error=error)


def _not_together(logs: list[RankLog], first: int, by_rank: Verdicts) -> Failure:
    """Return the failure of a run in which every rank that complains is a victim."""
    verdict, stood = by_rank[first], stands.find_stands(logs)
    aborted = (first, verdict.heard.sizes[1]) if verdict.heard.sizes else None
    why: Cause | None = hang.find_difference([log.calls for log in logs], aborted)
    if not (why and why.symptom is Symptom.DIFFERENT_TENSORS):
        why = _told_by_torch(logs, first, by_rank, stood)
        why = why or hang.diagnose(logs, stood)
    # Of ranks that wait in one call their own words tell more.
    if not why or isinstance(why, Apart) and why.in_one_call:
        odd = odd_one({rank: e.heard.parameters for rank, e in by_rank.items()})
        first = first if odd is None else odd  # whose model DDP finds to be another
        return replace(_failed_by_itself(logs, first, by_rank), stands=stood)
    also = (Complaint(rank=first, of=verdict.cause),)
    others: dict[int, Cause | Stand] = {stand.rank: stand for stand in stood}
    failure = Failure(_kind(verdict.cause), why, also, verdict.traceback, others, stood)
    return _with_traceback(failure, logs)


def _told_by_torch(
    logs: list[RankLog], first: int, by_rank: Verdicts, stood: list[Stand]
) -> Cause | None:
    """Return the cause that gloo, DDP or TORCH_DISTRIBUTED_DEBUG=DETAIL has printed."""
    verdict = by_rank[first]
    frame, symptom = verdict.cause.frame, Symptom.DIFFERENT_TENSORS
    if sizes := verdict.heard.sizes:
        why = SizesDiffer(
            frame=frame,
            symptom=symptom,
            came=sizes[0],
            expected=sizes[1],
            name=stood[first].name or stands.called(logs[first]),
        )
        return _with_silent(why, logs, by_rank, stood)
    if len(verdict.heard.calls) != 2:
        return None
    if len({call.name for call in verdict.heard.calls.values()}) > 1:
        symptom = Symptom.DIFFERENT_CALLS
    return CallsDiffer(frame=frame, symptom=symptom, calls=verdict.heard.calls)


def _with_silent(
    why: SizesDiffer,
    logs: list[RankLog],
    by_rank: Verdicts,
    stood: list[Stand],
) -> SizesDiffer:
    """Blame the one rank that has left no record, where all others made one call.

    gloo aborts a rank that gets more than its tensor has room for. If its own stack
    stands in another call, as in a recv before, it is not that.
    """
    silent = [rank for rank, log in enumerate(logs) if not log.calls]
    last = {str(log.calls[-1]): log.calls[-1].name for log in logs if log.calls}
    if len(silent) != 1 or len(last) != 1 or len(logs) < 3:
        return why
    (rank,), (name,) = silent, last.values()
    if not {stands.called(logs[rank]), why.name} <= {"", name}:
        return why
    frame = by_rank[rank].cause.frame if rank in by_rank else None
    return replace(why, rank=rank, frame=frame or why.frame, name=name)


def _launch_failure(stderr: str, code: int) -> Failure:
    """Return the failure of a run that started no rank, or whose ranks left no word."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    error = stacks.last_error(stderr) or (lines[-1].strip() if lines else "")
    why: Cause = Raised(error=error) if error else Exited(code=code)
    if code < 0:
        why = Stopped(by="torchrun", limit=signal_name(-code) or f"signal {-code}")
    why = replace(why, symptom=_symptom(why))
    also = (KnownAs(symptom=why.symptom),) if why.symptom else ()
    return Failure("launch", why, also, traceback=stderr)

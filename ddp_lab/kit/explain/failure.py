"""Find out why a run failed: which rank, which line, and in which words.

torchrun names the failure that it saw first, which is often the victim: the rank whose
peer has gone complains at once. So every rank's own evidence is read here. Whoever
only noticed that somebody else had gone, or waited for it in vain, comes last; and if
nobody else is left, the calls and the stacks tell (see hang.py).
"""

import re
import signal
from dataclasses import dataclass, field, replace

from ddp_lab.kit.explain import hang, stacks, symptoms
from ddp_lab.kit.explain.logs import RankLog, RunLog
from ddp_lab.kit.explain.symptoms import Symptom

SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, "
    r")?OpType=(\w+)(?:, TensorShape=\[(.*?)\], TensorDtypes=(\w+))?"
)
HEADSTART = 0.1  # seconds by which a silent death may be noticed late
USUAL_SENDER = {
    "SIGKILL": "usually sent by the system when memory runs out",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "a crash in native code, or a failed check there",
    "SIGBUS": "often a full /dev/shm",
}
STOPPED = {
    "timeout": "no end after {0:g} seconds; all processes were stopped",
    "interrupt": "stopped by hand; all processes were ended",
    "output": "more than {0:,} bytes of output; all processes were stopped",
}


@dataclass(frozen=True)
class Failure:
    """Why a run failed."""

    kind: str
    """"exception", "signal", "exit"; "timeout", "interrupt" or "output" if the run was
    stopped; "launch" if no rank was started."""
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

    def report(self, traceback: bool = True) -> str:
        """Return the cause, then the evidence, then the other ranks."""
        who = "the run" if self.rank is None else f"rank {self.rank}"
        text = [f"{who}: {self.cause}"]
        if self.where:
            text.append(f"  at {self.where}")
        if self.means:
            text.append(f"  {self.means}")
        if traceback and self.traceback:
            text.append("\n" + self.traceback.rstrip() + "\n")
        text += [f"  rank {rank}: {what}" for rank, what in self.others.items()]
        return "\n".join(text)


@dataclass(frozen=True)
class _Evidence:
    """What one rank left behind."""

    kind: str
    cause: str
    frame: stacks.Frame | None
    traceback: str
    time: float
    words: str
    """All that it said: the cause, the traceback and the end of its stderr."""

    @property
    def place(self) -> tuple[str | None, int | None]:
        """The program's own line in words, and its number."""
        return _place(self.frame)

    def lost_peer(self) -> bool:
        """Tell whether the rank only noticed that another one had gone."""
        return bool(hang.LOST_PEER.search(self.cause)) or "SIGTERM" in self.cause

    def out_of_step(self) -> bool:
        """Tell whether the rank and the others did not come together."""
        return bool(hang.OUT_OF_STEP.search(self.words))

    def order(self) -> tuple[int, float]:
        """Sort key: who died without a word, then who raised, then the victims."""
        if self.lost_peer():
            return (4 if self.traceback else 5), self.time
        if self.out_of_step():
            return 3, self.time
        if "SIGABRT" in self.cause:
            return 2, self.time
        return (1 if self.kind == "exception" else 0), self.time


def find_failure(
    log: RunLog, code: int, stopped: str | None, limit: float
) -> tuple[Failure | None, list[int | None]]:
    """Return why the run failed, if it did, and the exit code of each rank.

    A rank that was aborted after it had done everything has not failed: a plain exit
    of Python sometimes ends that way under gloo's threads (see rank.py).

    Args:
        log: what the run left behind.
        code: exit code of the whole command.
        stopped: why the launcher has ended the run, a key of `STOPPED`, if it has.
        limit: the seconds of silence or the bytes of output that it was allowed.
    """
    codes = [rank.code for rank in log.ranks]
    if stopped:
        return _stopped(log.ranks, stopped, limit), codes
    if not log.failed(code):
        return None, [code for _ in log.ranks]
    if log.ranks and all(rank.finished for rank in log.ranks):
        return None, codes
    if codes == [None]:
        codes = [code]
    failure = _first_failure(log, code, codes)
    return replace(failure, rank=log.culprit(failure.rank)), codes


def find_notes(ranks: list[RankLog]) -> list[str]:
    """Return what is wrong with a run although every rank has ended well."""
    stayed = [r for r, log in enumerate(ranks) if log.end and not log.end["left_group"]]
    notes = []
    if stayed:
        who = hang.ranks(stayed)
        notes.append(f"{who} ended without dist.destroy_process_group()")
    if found := hang.mismatch([log.calls for log in ranks]):
        notes.append(f"not the same on all ranks: {found.cause}")
    return notes


def _first_failure(log: RunLog, code: int, codes: list[int | None]) -> Failure:
    """Return the failure that came first: that of a rank, or of the command itself."""
    evidence = {
        rank: found
        for rank, its_log in enumerate(log.ranks)
        if (found := _evidence(its_log, codes[rank]))
    }
    if not evidence:
        return _launch_failure(log.stderr, code)
    # A size that gloo did not expect comes before whatever was computed from it.
    first = min(
        evidence,
        key=lambda rank: (
            not SIZES.search(evidence[rank].words),
            evidence[rank].order(),
        ),
    )
    if evidence[first].lost_peer() or evidence[first].out_of_step():
        return _not_together(log.ranks, first, evidence)
    found = evidence.pop(first)
    failure = Failure(found.kind, first, found.cause, *found.place)
    failure = replace(failure, traceback=found.traceback, others=_failures(evidence))
    return _known(failure, log.ranks)


def _failures(evidence: dict[int, _Evidence]) -> dict[int, str]:
    return {
        rank: _shorten(other.cause)
        for rank, other in sorted(evidence.items())
        if not other.lost_peer()
    }


def _stopped(logs: list[RankLog], stopped: str, limit: float) -> Failure:
    """Return the failure of a run that the launcher has ended."""
    stands = hang.find_stands(logs)
    others = {stand.rank: _stand(stand, logs[stand.rank]) for stand in stands}
    cause = STOPPED[stopped].format(limit)
    failure = Failure(stopped, None, cause, others=others, stands=stands)
    found = hang.diagnose(logs, stands) if stopped == "timeout" else None
    return _diagnosed(failure, found, means=cause) if found else failure


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


def _not_together(
    logs: list[RankLog], first: int, evidence: dict[int, _Evidence]
) -> Failure:
    """Return the failure of a run in which every rank that complains is a victim."""
    said = evidence[first]
    stands = hang.find_stands(logs)
    found = hang.diagnose(logs, stands)
    if not (found and found.symptom is Symptom.DIFFERENT_TENSORS):
        found = _told_by_torch(said, stands[first].name) or found
    failure = Failure(said.kind, first, said.cause, *said.place)
    failure = replace(failure, traceback=said.traceback, stands=stands)
    if not found:
        evidence.pop(first)
        return _known(replace(failure, others=_failures(evidence)), logs)
    others = {stand.rank: _stand(stand, logs[stand.rank]) for stand in stands}
    means = f"rank {first}: {_shorten(said.cause)}"
    return _diagnosed(replace(failure, others=others), found, means)


def _told_by_torch(said: _Evidence, name: str) -> hang.Diagnosis | None:
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
    if symptom:  # a signal's usual meaning is part of the cause already
        means = None if failure.kind == "signal" else f"that is: {symptom.means}"
        return replace(failure, symptom=symptom, means=means)
    if found := hang.mismatch([log.calls for log in logs]):
        return replace(failure, symptom=found.symptom, means=f"before: {found.cause}")
    return failure


def _launch_failure(stderr: str, code: int) -> Failure:
    """Return the failure of a run that started no rank, or whose ranks left no word."""
    cause = stacks.last_error(stderr)
    if not cause:
        lines = [line for line in stderr.splitlines() if line.strip()]
        cause = lines[-1].strip() if lines else f"exit code {code}"
    return _known(Failure("launch", None, cause, traceback=stderr), [])


def _evidence(log: RankLog, code: int | None) -> _Evidence | None:
    """Return what a rank left behind; None if nothing says that it failed."""
    if log.finished:
        return None
    frame = stacks.own(stacks.from_text(log.traceback))
    ended_in_words = code == -signal.SIGTERM and log.traceback
    if code is not None and code < 0 and not ended_in_words:
        names = {known.value: known.name for known in signal.Signals}
        name = names.get(-code, f"signal {-code}")
        sender = f" ({USUAL_SENDER[name]})" if name in USUAL_SENDER else ""
        kind, cause = "signal", f"ended by {name}{sender}"
    elif log.traceback:
        error = stacks.last_error(log.traceback)
        kind, cause = "exception", error or log.traceback.splitlines()[0]
    elif code:
        said = f": {log.warnings[-1]}" if log.warnings else ""
        kind, cause = "exit", f"exit code {code}{said}"
    else:
        return None
    words = "\n".join([cause, log.traceback, *log.warnings[-5:]])
    return _Evidence(kind, cause, frame, log.traceback, log.time, words)


def _place(frame: stacks.Frame | None) -> tuple[str | None, int | None]:
    return (frame.place, frame.line) if frame else (None, None)


def _stand(stand: hang.Stand, log: RankLog) -> str:
    """Return where a rank stood, or at least what it printed last."""
    if stand.state != "unknown":
        return str(stand)
    return f"last printed {log.lines[-1]!r}" if log.lines else "printed nothing"


def _shorten(text: str, width: int = 140) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"

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
from ddp_lab.kit.explain.logs import CHILD, RankLog
from ddp_lab.kit.run import machine

SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, "
    r")?OpType=(\w+)(?:, TensorShape=\[(.*?)\], TensorDtypes=(\w+))?"
)
USUAL_SENDER = {
    "SIGKILL": "usually sent by the system when memory runs out",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "a crash in native code, or a failed check there",
    "SIGBUS": "often a full /dev/shm",
}
ENDED = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
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
    """The program's own line, as in `ddp_lab/p2p_ring.py:45 in pass_token`."""
    line: int | None = None
    """Its number."""
    symptom: str | None = None
    """Its name in the table of `ddp_lab.kit.explain.symptoms`, if it is a known one."""
    means: str | None = None
    """What the cause usually means, in one sentence."""
    traceback: str = field(default="", repr=False)
    others: dict[int, str] = field(default_factory=dict)
    """What is known of the other ranks: their own failures and, if somebody waited in
    vain, where each rank stood. A rank that only lost its connection is left out."""
    stands: list[hang.Stand] = field(default_factory=list, repr=False)
    """Where each rank stood when it was last seen, if the run stood still."""

    def of_family(self, agent: str) -> "Failure":
        """Return the failure of a program that starts its ranks itself.

        They share one stderr, so only the program's own words tell whose fault it was.
        """
        if self.kind in STOPPED or CHILD.search(agent):
            return self
        named = re.search(r"[Pp]rocess (\d+) terminated", agent)
        return replace(self, rank=int(named[1]) if named else None)

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

    def follows(self) -> bool:
        """Tell whether the rank only noticed that another one had gone."""
        return bool(hang.FOLLOW_UP.search(self.cause)) or "SIGTERM" in self.cause

    def torn(self) -> bool:
        """Tell whether the rank and the others did not come together."""
        return bool(hang.TORN.search(self.words))

    def order(self) -> tuple[int, float]:
        """Sort key: whoever died without a word, then who raised, then the victims."""
        if self.follows():
            return (4 if self.traceback else 5), self.time
        if self.torn():
            return 3, self.time
        if "SIGABRT" in self.cause:
            return 2, self.time
        return (1 if self.kind == "exception" else 0), self.time


def find_failure(
    logs: list[RankLog], agent: str, code: int, stopped: str | None, limit: float
) -> tuple[Failure | None, list[int | None]]:
    """Return why the run failed, and the exit code of each rank that ended by itself.

    A rank that was aborted after it had done everything has not failed: a plain exit
    of Python sometimes ends that way under gloo's threads (see rank.py).

    Args:
        logs: what each rank wrote.
        agent: torchrun's own stderr.
        code: exit code of the whole command.
        stopped: why the launcher has ended the run, a key of `STOPPED`, if it has.
        limit: the seconds of silence or the bytes of output that it was allowed.
    """
    codes = {int(rank): int(code) for rank, code in ENDED.findall(agent)}
    exit_codes = [codes.get(rank) for rank in range(len(logs))]
    for rank, log in enumerate(logs):
        if codes and rank not in codes and log.end is None:
            # torchrun lists whoever failed, so this one has left, say by os._exit(0).
            log.end = {"code": 0, "left_group": False}
        if log.end:
            exit_codes[rank] = log.end["code"]
    if stopped:
        return _stopped(logs, stopped, limit), exit_codes
    if logs and all(log.end and log.end["code"] == 0 for log in logs):
        return None, exit_codes
    if len(logs) == 1 and exit_codes == [None]:
        exit_codes = [code]
    evidence = {
        rank: found
        for rank, log in enumerate(logs)
        if (found := _evidence(log, exit_codes[rank]))
    }
    if not evidence:
        return _launch_failure(agent, code), exit_codes
    # A size that gloo did not expect comes before whatever was computed from it.
    first = min(
        evidence,
        key=lambda rank: (
            not SIZES.search(evidence[rank].words),
            evidence[rank].order(),
        ),
    )
    if evidence[first].follows() or evidence[first].torn():
        return _not_together(logs, first, evidence), exit_codes
    found = evidence.pop(first)
    return _known(
        Failure(
            found.kind,
            first,
            found.cause,
            found.frame and found.frame.place,
            found.frame and found.frame.line,
            traceback=found.traceback,
            others=_failures(evidence),
        ),
        logs,
    ), exit_codes


def _failures(evidence: dict[int, _Evidence]) -> dict[int, str]:
    return {
        rank: _shorten(other.cause)
        for rank, other in sorted(evidence.items())
        if not other.follows()
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
    return replace(
        failure,
        rank=found.rank,
        cause=found.cause,
        where=found.frame and found.frame.place,
        line=found.frame and found.frame.line,
        symptom=found.symptom,
        means=means,
    )


def _not_together(logs, first: int, evidence: dict[int, _Evidence]) -> Failure:
    """Return the failure of a run in which every rank that complains is a victim."""
    said = evidence[first]
    stands = hang.find_stands(logs)
    found = hang.diagnose(logs, stands)
    if not (found and found.symptom.startswith("different ten")):
        found = _told_by_torch(said, stands[first].name) or found
    place, line = said.frame and said.frame.place, said.frame and said.frame.line
    failure = Failure(said.kind, first, said.cause, place, line)
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
        return hang.Diagnosis("different tensors", cause, None, said.frame)
    sides = {rank: call for rank, *call in FINGERPRINT.findall(said.words)}
    if len(sides) == 2:
        calls = [
            f"rank {rank} calls {name.lower()}"
            + (f" of {dtype} [{shape}]" if dtype else "")
            for rank, (name, shape, dtype) in sides.items()
        ]
        what = "tensors" if len({name for name, *_ in sides.values()}) == 1 else "calls"
        cause = ", but ".join(calls)
        return hang.Diagnosis(f"different {what}", cause, None, said.frame)
    return None


def _known(failure: Failure, logs: list[RankLog]) -> Failure:
    """Add what the cause usually means, and calls that differed before it came up."""
    symptom = symptoms.find(failure.cause)
    if symptom:  # a signal's usual meaning is part of the cause already
        means = None if failure.kind == "signal" else f"that is: {symptom.means}"
        if held := machine.holder(symptom.name, failure.cause):
            means = f"{means}; {held}"
        return replace(failure, symptom=symptom.name, means=means)
    if found := hang.misfit([log.calls for log in logs]):
        return replace(failure, symptom=found.symptom, means=f"before: {found.cause}")
    return failure


def _launch_failure(agent: str, code: int) -> Failure:
    """Return the failure of a run that has started no rank, or whose ranks kept mum."""
    cause = stacks.last_error(agent)
    if not cause:
        lines = [line for line in agent.splitlines() if line.strip()]
        cause = lines[-1].strip() if lines else f"exit code {code}"
    return _known(Failure("launch", None, cause, traceback=agent), [])


def _evidence(log: RankLog, code: int | None) -> _Evidence | None:
    """Return what a rank left behind; None if nothing says that it failed."""
    if log.end and log.end["code"] == 0:
        return None
    frame = stacks.own(stacks.from_text(log.traceback))
    died = code is not None and code < 0
    if died and not (code == -signal.SIGTERM and log.traceback):
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


def _stand(stand: hang.Stand, log: RankLog) -> str:
    """Return where a rank stood, or at least what it printed last."""
    if stand.state != "unknown":
        return str(stand)
    return f"last printed {log.lines[-1]!r}" if log.lines else "printed nothing"


def _shorten(text: str, width: int = 140) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"

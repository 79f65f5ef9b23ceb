"""How a rank failed, and which of several failures came first.

torchrun names the failure that it saw first, which is often the victim: the rank whose
peer has gone complains at once. So every rank's own evidence is read here.
"""

import re
import signal
from dataclasses import dataclass, replace

from ddp_lab.kit.record import stacks, stderr
from ddp_lab.kit.record.logs import RankLog
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.record.words import signal_name

HEADSTART = 0.1  # seconds by which a death without a word may be noticed late
AFTERWARDS = 1.0  # seconds that the end of a child takes which has raised
USUAL_SENDER = {
    "SIGKILL": "usually sent by the system when memory runs out",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "a crash in native code, or a failed check there",
    "SIGBUS": "often a full /dev/shm",
}
UNWILLING = "was asked to end, and did not"
EMBEDDED = "Traceback (most recent call last):"
# Whoever raises anew what another process has raised puts its traceback in the message.
RAISED_ANEW = re.compile(r"Caught \w+ in|terminated with the following error")


@dataclass(frozen=True)
class End:
    """How one rank failed."""

    kind: str
    """"exception", "signal" or "exit"."""
    cause: str
    frame: Frame | None
    traceback: str
    time: float
    words: str
    """All that it said: the cause, the traceback and the end of its stderr."""
    before: tuple[str, ...] = ()
    """The exceptions that led to this one."""
    certain: bool = True
    """Whether it is known to have failed: a traceback may have been caught."""
    asked: bool = False
    """Whether torchrun had asked it to end, because another rank had failed."""
    own_word: bool = False
    """Whether it has left word of its end itself, and so of the time."""
    quietly: bool = False
    """Whether it may have left because another one had gone, and have said so on a
    stderr that all share."""
    own_error: bool = False
    """Whether the program itself has raised its error, in whatever words."""

    def lost_peer(self) -> bool:
        """Tell whether the rank only noticed that another one had gone."""
        said = "" if self.own_error else "\n".join([self.cause, *self.before])
        return self.asked or stderr.lost_peer(said)

    def out_of_step(self) -> bool:
        """Tell whether the rank and the others did not come together."""
        return not self.own_error and bool(stderr.OUT_OF_STEP.search(self.words))

    def is_victim(self) -> bool:
        """Tell whether somebody else's failure, or absence, explains this one."""
        return self.lost_peer() or self.out_of_step()

    def unwilling(self) -> bool:
        """Tell whether the rank had been asked to end, and went on."""
        return self.cause == UNWILLING

    def order(self) -> tuple[int, float]:
        """Sort key: who failed by itself, by time, and then the victims.

        Of a death without a word everybody else may know a moment earlier than we do.
        An abort may be how native code takes the failure of another rank.
        """
        if self.lost_peer():
            return (4 if self.traceback else 5), self.time
        if self.out_of_step():
            return 3, self.time
        if "SIGABRT" in self.cause:
            return 0, self.time + HEADSTART
        if self.quietly:
            return 0, self.time + AFTERWARDS
        told = self.own_word or self.kind == "exception"
        return 0, self.time - (0 if told else HEADSTART)


def find(log: RankLog, code: int | None) -> End | None:
    """Return how the rank failed; None if nothing says that it did.

    Args:
        log: what it left behind.
        code: its exit code.
    """
    if log.finished:
        return None
    frame = stacks.own(log.frames or stacks.from_text(log.traceback))
    ended_in_words = bool(log.raised or code == -signal.SIGTERM and log.traceback)
    if code == -signal.SIGABRT and log.traceback.startswith(EMBEDDED):
        ended_in_words = not log.guessed  # then gloo aborted what was ending anyway
    asked = log.asked or log.exit is None and code == -signal.SIGTERM
    if log.exit and log.exit["code"] is None and not log.raised:
        kind, cause = "signal", UNWILLING
    elif code is not None and code < 0 and not ended_in_words:
        kind, cause = "signal", f"ended by {signal_and_sender(code)}"
    elif log.traceback:
        kind, (cause, frame) = "exception", _exception(log, frame)
    elif code:
        known = log.last_words and not log.others_lost_peer  # whose words they are
        said = f": {log.last_words}" if known else ""
        kind, cause = "exit", f"exit code {code}{said}"
    else:
        return None
    before = tuple((log.raised or log.end or {}).get("before", ()))
    words = "\n".join([cause, *before, log.traceback, *_plain(log)[-5:]])
    certain = bool(code or log.raised or log.traceback and not log.guessed)
    end = End(kind, cause, frame, log.traceback, log.time, words, before, certain)
    quietly = kind == "exit" and log.others_lost_peer
    own_word = bool(log.end and "time" in log.end)
    end = replace(end, asked=asked, own_word=own_word, quietly=quietly)
    return replace(end, own_error=log.has_own_words)


def signal_and_sender(code: int) -> str:
    """Return the name of the signal of a negative exit code, and who sends it."""
    name = signal_name(-code) or f"signal {-code}"
    return f"{name} ({USUAL_SENDER[name]})" if name in USUAL_SENDER else name


def _exception(log: RankLog, frame: Frame | None) -> tuple[str, Frame | None]:
    """Return the exception in one line, and the program's line to name."""
    error = (log.raised or {}).get("error") or stacks.last_error(log.traceback)
    if not error:
        return log.traceback.splitlines()[0], frame
    if EMBEDDED not in error:
        return stacks.one_line(error), frame
    head = error.partition(EMBEDDED)[0].strip().removesuffix("Original").strip()
    inner = stacks.last_error(error)
    if RAISED_ANEW.search(error):
        frame = stacks.own(stacks.from_text(error)) or frame
        return stacks.one_line(f"{head} {inner}"), frame
    return stacks.one_line(head or inner), frame


def _plain(log: RankLog) -> list[str]:
    """Return the lines of stderr that belong to no traceback."""
    parts = [part for part in log.remarks if not part.is_traceback]
    return [line for part in parts for line in part.lines]

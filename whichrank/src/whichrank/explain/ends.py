"""How a rank failed, and which of several failures came first.

torchrun names the failure that it saw first, which is often the victim: the rank whose
peer has gone complains at once. So every rank's own evidence is read here.
"""

import signal
from dataclasses import dataclass

from whichrank.explain.cause import Ended
from whichrank.explain.causes.ended import Exited, Raised, Signalled
from whichrank.explain.stands import communication
from whichrank.record import stacks
from whichrank.record.heard import Heard
from whichrank.record.rank_log import TRACEBACK, RankLog
from whichrank.record.stacks import Frame
from whichrank.record.torch_words import RAISED_ANEW, Blames

HEADSTART = 0.1  # seconds by which the end of a rank may be seen late


@dataclass(frozen=True)
class Verdict:
    """How one rank failed."""

    cause: Ended
    heard: Heard
    """What it has said of the others."""
    traceback: str
    time: float
    asked: bool = False
    """Whether torchrun had asked it to end, because another rank had failed."""
    own_time: bool = False
    """Whether it has itself left word of when it left by sys.exit."""

    @property
    def blames(self) -> Blames:
        """Whom it blames; torchrun asks a rank because another one has gone."""
        return Blames.GONE if self.asked else self.heard.blames

    @property
    def is_victim(self) -> bool:
        """Whether somebody else's failure, or absence, explains this one."""
        return self.blames is not Blames.ITSELF

    def order(self) -> tuple[int, float]:
        """Sort key: who failed by itself, by time, and then the victims.

        That a rank has gone without a word is seen up to HEADSTART late, so it
        counts as earlier. An abort counts as later: native code may abort because
        another rank has failed.
        """
        if self.blames is Blames.GONE:
            return (2 if self.traceback else 3), self.time
        if self.is_victim:
            return 1, self.time
        by = self.cause.code if isinstance(self.cause, Signalled) else 0
        if by == -signal.SIGABRT:
            return 0, self.time + HEADSTART
        known = self.own_time or isinstance(self.cause, Raised)
        return 0, self.time - (0 if known else HEADSTART)


def of_rank(log: RankLog) -> Verdict | None:
    """Return how the rank failed; None if nothing says that it did."""
    if log.finished:
        return None
    code = log.code
    asked = log.asked or log.exit is None and code == -signal.SIGTERM
    frame = stacks.own(log.frames or stacks.from_text(log.traceback))
    if code is not None and code < 0 and not log.raised:
        cause: Ended = Signalled(frame=frame, code=code)
    elif log.traceback:
        error, frame = _exception(log, frame)
        inside = communication(log.frames or stacks.from_text(log.traceback))
        name = inside.name if inside else ""
        cause = Raised(frame=frame, error=error, inside=name, code=code)
    elif code:
        cause = Exited(frame=frame, code=code, words=log.last_words)
    else:
        return None
    own_time = bool(log.end and log.end.time)
    return Verdict(cause, log.heard, log.traceback, log.time, asked, own_time)


def _exception(log: RankLog, frame: Frame | None) -> tuple[str, Frame | None]:
    """Return the exception in one line, and the program's line to name."""
    error = log.raised.error if log.raised else stacks.last_error(log.traceback)
    if not error:
        return log.traceback.splitlines()[0], frame
    if TRACEBACK not in error:
        return stacks.one_line(error), frame
    head = error.partition(TRACEBACK)[0].strip().removesuffix("Original").strip()
    inner = stacks.last_error(error)
    if RAISED_ANEW.search(error):
        frame = stacks.own(stacks.from_text(error)) or frame
        return stacks.one_line(f"{head} {inner}"), frame
    return stacks.one_line(head or inner), frame

"""What one rank wrote: lines, facts, warnings, tracebacks, and how it ended."""

import json
import signal
from dataclasses import dataclass, field, replace

from whichrank.record import stacks, stderr
from whichrank.record.calls import Call
from whichrank.record.files import clip
from whichrank.record.heard import Heard, listen
from whichrank.record.rank_end import Error, Exit, LastWord
from whichrank.record.torch_words import NOISE, STORE, lost_peer

LOGGED = 5  # of the last lines of stderr, which may tell why it was aborted
TRACEBACK = "Traceback (most recent call last):"
# With what torchrun asks a rank to end: what it was sent itself, or SIGTERM.
REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# What makes faulthandler write where the threads are.
CRASHES = (
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
)


@dataclass
class RankLog:
    """What one rank wrote."""

    lines: list[str] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    remarks: list[stderr.Part] = field(default_factory=list)
    """stderr without the traceback that was its end."""
    traceback: str = ""
    """How it ended, in Python's words."""
    time: float = 0.0
    """When it failed, in seconds since the epoch."""
    stack: list[stacks.Frame] = field(default_factory=list)
    """Where it stood when it was last seen."""
    beside: dict[str, list[stacks.Frame]] = field(default_factory=dict)
    """Where its other threads stood, and the processes that it had started."""
    stopped: bool = False
    """Whether it was halted, say by SIGSTOP."""
    calls: list[Call] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    """The ranks of each process group."""
    end: LastWord | None = None
    raised: Error | None = None
    exit: Exit | None = None
    handles: dict | None = None
    """The exception that it was handling when it was last asked; see answers.py."""
    threads: dict[str, list[stacks.Frame]] = field(default_factory=dict)
    """Where those of its threads stood for which Python waits at the end."""
    meets: tuple[str, ...] = ()
    """The address and port at which it was told to meet, and those that it took."""
    code: int | None = None
    """The exit code, negative for a signal; None if it did not end by itself."""

    @property
    def finished(self) -> bool:
        """Whether the rank has done everything, and without an error."""
        return self.end is not None and self.end.code == 0

    @property
    def heard(self) -> Heard:
        """What it has said of other ranks when it ended.

        A signal that ends a process leaves a dump of its stack, which says nothing; a
        program that asks a store itself waits for no other rank.
        """
        error = self.raised.error if self.raised else ""
        if error.startswith(STORE) and self.frames and self.frames[0].own:
            return Heard()
        words = [error, *self.before]
        if self.traceback and (self.raised or (self.code or 0) >= 0):
            words.append(self.traceback)
        elif self.code and self.code > 0:
            words.append(self.last_words)
        plain = [part.lines for part in self.remarks if not part.is_traceback]
        return listen("\n".join(words), "\n".join(sum(plain, [])[-LOGGED:]))

    @property
    def before(self) -> tuple[str, ...]:
        """The exceptions that led to its end."""
        left = self.raised or self.end
        return tuple(left.before) if left else ()

    @property
    def frames(self) -> list[stacks.Frame]:
        """Where it raised what ended it, or left by sys.exit; innermost frame first."""
        left = self.raised or self.end
        return [*left.frames] if left else []

    @property
    def asked(self) -> bool:
        """Whether it ended, or has not ended, because torchrun asked it to."""
        if not self.exit or not self.exit.asked:
            return False
        code = self.exit.code
        by_request = (code is None or -code in REQUESTS) and not self.end
        return by_request and not self.raised or self.time >= self.exit.asked

    @property
    def warnings(self) -> list[str]:
        """stderr without noise, and without the traceback that was its end."""
        return [line for part in self.remarks for line in part.lines]

    @property
    def last_words(self) -> str:
        """The last line of stderr, if it belongs to no traceback."""
        last = self.remarks[-1] if self.remarks else None
        if not last or last.is_traceback:
            return ""
        words = [x for x in last.lines if not stderr.WARNING.match(x) and x[0] != " "]
        return words[-1] if words else ""

    @property
    def other_traceback(self) -> str:
        """The last traceback that was not its end: a thread's, or one it has caught."""
        texts = [part.text for part in self.remarks if part.is_traceback]
        return texts[-1] if texts else ""

    def add_line(self, line: str) -> None:
        """Keep a line of stdout: a JSON object is a fact, anything else a line."""
        fact = _fact(line)
        if fact is not None:
            self.facts.update(fact)
        elif not NOISE.search(line):
            self.lines.append(line)

    def add_stderr(self, text: str) -> None:
        """Keep stderr, of which `raised` and `code` tell what was the rank's end."""
        if self.raised and self.code != 0:  # there may be no room for its traceback
            known = self.raised.traceback
            self.traceback = clip(known or self.raised.error)
            self.remarks = stderr.split(stderr.without(text, known) if known else text)
            return
        self.remarks = parts = stderr.split(text)
        dumps = [part for part in parts if part.is_dump]
        if dumps and self.code and -self.code in CRASHES:
            self._end_with(dumps[-1])
        elif (self.code or 0) > 0 and parts and parts[-1].may_be_the_end:
            # Another program took the rank's place, or it left in the midst; or it has
            # logged a lost peer before it left.
            if self.code == 1 and not self.end or lost_peer(parts[-1].text):
                self._end_with(parts[-1])

    def _end_with(self, part: stderr.Part) -> None:
        self.remarks = [each for each in self.remarks if each is not part]
        self.traceback = clip(part.text.rstrip("\n") + "\n")

    def add_seen(self, seen: dict | None) -> None:
        """Keep what was seen of the rank from outside, beside its main thread."""
        for each in seen["beside"] if seen else []:
            self.beside[each["name"]] = stacks.from_json(each["stack"])
        self.stopped = bool(seen and seen["stopped"])

    def as_it_stood(self, before: "RankLog") -> "RankLog":
        """Return this log without what the rank did because it was ended.

        Ranks end one after the other, and the last ones complain of lost connections.

        Args:
            before: the same rank's log, read just before it was ended.
        """
        known = [part.text for part in before.remarks]
        return replace(
            before,
            lines=self.lines,
            facts=self.facts,
            stack=before.stack or self.stack,
            remarks=[
                part
                for part in self.remarks
                if not part.is_traceback or part.text in known
            ],
        )


def _fact(line: str) -> dict | None:
    """Return the JSON object that a line is; None if it is none, or cannot be one."""
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        fact = json.loads(line)
        json.dumps(fact, ensure_ascii=False).encode()  # no half characters
    except (ValueError, RecursionError):
        return None
    return fact

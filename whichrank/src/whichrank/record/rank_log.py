"""What follows from the files of one rank: its words, where it stood, how it ended."""

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from whichrank.record import stacks, stderr
from whichrank.record.calls import with_failed
from whichrank.record.files import clip
from whichrank.record.heard import Heard, listen
from whichrank.record.rank_end import LastWord
from whichrank.record.rank_files import Evidence, RankFiles
from whichrank.record.stacks import Frame
from whichrank.record.torch_words import NOISE, QUOTED, STORE, lost_peer

RAISES = re.compile(r"(^|: )raise ")
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


@dataclass(frozen=True)
class RankLog(Evidence):
    """What is known of one rank; made of its files by `of`."""

    lines: list[str] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    remarks: list[stderr.Part] = field(default_factory=list)
    """stderr without the traceback that was its end."""
    traceback: str = ""
    """How it ended, in Python's words."""
    time: float = 0.0
    """When it failed, in seconds since the epoch."""
    stack: list[Frame] = field(default_factory=list)
    """Where it stood when it was last seen."""
    end: LastWord | None = None
    code: int | None = None
    """The exit code, negative for a signal; None if it did not end by itself."""

    @classmethod
    def of(cls, files: RankFiles, said: int | None = None) -> "RankLog":
        """Return what follows from the files of a rank.

        Args:
            files: what it has left.
            said: its exit code as torchrun has it: 0 if it has named other ranks that
                failed, but not this one; None if it has named none.
        """
        end, code = _end_and_code(files, said)
        log = cls.of_output(replace(files, end=end), code)
        raised = log.frames or stacks.from_text(log.traceback)
        times = [left.time for left in (files.raised, end, files.exit) if left]
        if log.heard.gave_up:
            calls = with_failed(files.calls, stacks.own(raised))
            files = replace(files, calls=calls)
        kept = {each.name: getattr(files, each.name) for each in fields(Evidence)}
        return replace(
            log,
            **kept,
            time=next(filter(None, times), 0.0),
            stack=_stack(files, raised, has_ended=bool(files.raised or end)),
        )

    @classmethod
    def of_output(cls, files: RankFiles, code: int | None = None) -> "RankLog":
        """Return what follows from what a rank or a program has printed, and its end.

        Args:
            files: what it has left.
            code: its exit code, if that is known.
        """
        lines, facts = _lines_and_facts(files.stdout)
        parts = stderr.split(files.stderr)
        if files.raised and code != 0:  # there may be no room for its traceback
            known = files.raised.traceback
            traceback = known or files.raised.error
            if known:
                parts = stderr.split(stderr.without(files.stderr, known))
        else:
            last = _its_end(parts, files.end, code)
            parts = [part for part in parts if part is not last]
            traceback = last.text.rstrip("\n") + "\n" if last else ""
        log = cls(lines, facts, parts, clip(traceback), code=code)
        return replace(log, raised=files.raised, end=files.end)

    @property
    def finished(self) -> bool:
        """Whether the rank has done everything, and without an error."""
        return self.end is not None and self.end.code == 0

    @property
    def heard(self) -> Heard:
        """What it has said of other ranks when it ended.

        A signal that ends a process leaves a dump of its stack, which says nothing; a
        program that asks a store itself waits for no other rank, and what it raises
        itself is in its own words, unless it quotes torch.
        """
        error = self.raised.error if self.raised else ""
        own = [frame for frame in self.frames[:1] if frame.own]
        if own and error.startswith(STORE):
            return Heard()
        if own and RAISES.search(own[0].code) and not QUOTED.search(error):
            return listen("\n".join(self.before))
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

    def ended_at(self, time: float) -> "RankLog":
        """Return this log of a run that the guard has ended at `time`."""
        if not self.exit or self.exit.time < time:
            return self
        asked = min(self.exit.asked or time, time)
        return replace(self, exit=replace(self.exit, asked=asked))


def _end_and_code(
    files: RankFiles, said: int | None
) -> tuple[LastWord | None, int | None]:
    """Return the last word of a rank, and its exit code, as far as they are known."""
    exit, end, left = files.exit, files.end, files.left
    if left and left.time and not end and exit and left.time < (exit.asked or 0):
        end = left  # and was ended before it had done the rest
    code = said
    if exit:  # who was killed with its proxy has not ended well, whoever else failed
        code = exit.code if exit.code is not None else said or None
    if end is None and code == 0:
        end = LastWord(0, early=True)  # say by os._exit(0)
    return end, end.code if end else code


def _stack(files: RankFiles, raised: list[Frame], has_ended: bool) -> list[Frame]:
    """Return where a rank stood when it was last seen.

    Args:
        files: what it has left.
        raised: where it raised, or left.
        has_ended: by its own word: what a signal made it write then tells nothing new.
    """
    if raised and (has_ended or not files.seen):
        return raised
    moved = stacks.own(files.seen) and not stacks.same_line(files.seen, files.wrote)
    return files.wrote if files.wrote and (moved or not files.seen) else files.seen


def _its_end(
    parts: Sequence[stderr.Part], end: LastWord | None, code: int | None
) -> stderr.Part | None:
    """Return the traceback with which a rank ended that has left no exception."""
    dumps = [part for part in parts if part.is_dump]
    if dumps and code and -code in CRASHES:
        return dumps[-1]
    if not code or code < 0 or not parts or not parts[-1].may_be_the_end:
        return None
    # Another program took the rank's place, or it left in the midst; or it has logged a
    # lost peer before it left.
    known = code == 1 and not end or lost_peer(parts[-1].text)
    return parts[-1] if known else None


def _lines_and_facts(stdout: str) -> tuple[list[str], dict]:
    """Return what a rank has printed: a JSON object is a fact, anything else a line."""
    lines: list[str] = []
    facts: dict = {}
    for line in stdout.split("\n"):
        fact = _fact(line)
        if fact is not None:
            facts.update(fact)
        elif not NOISE.search(line):
            lines.append(line)
    return lines, facts


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

"""Take a rank's stderr apart: tracebacks, and the lines between them.

Not every traceback is the end of its rank: a thread dies, an exception is logged, a
child has a failure of its own.
"""

import re
from dataclasses import dataclass

from whichrank.record import stacks
from whichrank.record.files import clip
from whichrank.record.torch_words import NOISE

# torch puts "[rank1]: " in front of every line of an uncaught exception.
PREFIX = re.compile(r"^\[rank\d+\]:[ ]?", re.MULTILINE)
START = re.compile(
    r"Traceback \(most recent call last\):\s*$"
    r'|  File ".+", line \d+\s*$'  # a SyntaxError of the program itself
)
# Of a signal, or of faulthandler.dump_traceback_later.
DUMP = re.compile(r"Fatal Python error: |Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$")
DUMPED = re.compile(
    r"\s*$|(Current t|T)hread 0x|  (File \"|<|\.\.\.)|Extension modules:|Python "
)
# The line before a traceback that belongs to it.
SOMEBODY_ELSE = re.compile(r"Exception in thread |Exception ignored |Process \S+:$")
# Python prints a line of the source below it, indented, which is none either.
WARNING = re.compile(r".+:\d+: \w*Warning: ")
# The line between two tracebacks of one failure.
JOINT = re.compile(
    r"(During handling of|The above exception was)|-- Process \d+ terminated with"
    r"|Original Traceback"
)
LONGEST = 4000  # characters that are shown of a traceback that is not the rank's end


@dataclass(frozen=True)
class Part:
    """Successive lines of stderr: one traceback, or what stands between two."""

    text: str
    is_traceback: bool = False
    is_dump: bool = False
    """Whether faulthandler has written it."""

    @property
    def may_be_the_end(self) -> bool:
        """Whether the main thread may have ended with it."""
        return self.is_traceback and not SOMEBODY_ELSE.match(self.text)

    @property
    def lines(self) -> list[str]:
        """What is shown of it as warnings."""
        if not self.is_traceback:
            return [line for line in self.text.split("\n") if not NOISE.search(line)]
        return [line for line in clip(self.text, LONGEST).split("\n") if line.strip()]


def split(text: str) -> list[Part]:
    """Return the parts of a rank's stderr, in their order."""
    lines = PREFIX.sub("", text).split("\n")
    parts: list[Part] = []
    plain: list[str] = []
    at = 0
    while at < len(lines):
        is_dump = bool(DUMP.match(lines[at]))
        if not is_dump and not START.match(lines[at]):
            plain.append(lines[at])
            at += 1
            continue
        end = _end_of_dump(lines, at) if is_dump else _end_of_traceback(lines, at)
        intro = [plain.pop()] if plain and SOMEBODY_ELSE.match(plain[-1]) else []
        parts.append(Part("\n".join(plain)))
        plain = []
        words = "\n".join([*intro, *lines[at:end]])
        parts.append(Part(stacks.tidy(words) if is_dump else words, True, is_dump))
        at = end
    parts.append(Part("\n".join(plain)))
    return [part for part in parts if part.text.strip()]


def without(text: str, traceback: str) -> str:
    """Return a rank's stderr without the traceback that is known to be its end."""
    text, traceback = PREFIX.sub("", text), traceback.strip("\n")
    before, match, after = text.rpartition(traceback)
    if match and traceback:
        _, _, after = after.partition("\n")  # Python 3.11 adds "Did you mean" by itself
        return before.rstrip("\n") + "\n" + after.lstrip("\n")
    # Printed in another way, or not as a whole: then it is known by its last line.
    error = stacks.last_error(traceback)
    parts = split(text)
    for part in reversed(parts):
        if part.is_traceback and stacks.last_error(part.text) == error:
            parts.remove(part)
            break
    return "\n".join(part.text for part in parts)


def _end_of_dump(lines: list[str], at: int) -> int:
    end = at + 1
    while end < len(lines) and DUMPED.match(lines[end]):
        end += 1
    return end


def _end_of_traceback(lines: list[str], at: int) -> int:
    """Return the number of the line after the traceback that begins at `at`.

    Those that led to it, or that it led to, belong to it.
    """
    while True:
        end = at + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        at = end = end + 1
        while at < len(lines) and not START.match(lines[at]):
            at += 1
        between = [line for line in lines[end:at] if line.strip()]
        if at >= len(lines) or not between or not JOINT.match(between[-1]):
            return min(end, len(lines))

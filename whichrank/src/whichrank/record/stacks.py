"""Stacks of a process: as somebody has seen them from outside, or as it wrote them.

Either way a stack is a list of frames, innermost first.
"""

import linecache
import re
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path

from whichrank.record.files import clean
from whichrank.record.torch_words import REPORT

LIBRARY = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), "<frozen")
# The standard library of any Python, which may not be the one that we are.
STANDARD = re.compile(r"/lib(64)?/python\d+\.\d+/(?!site-packages|dist-packages)")
OURS = re.compile(r"/whichrank/(run|examination|slurm)/")  # of any installation
C10D = "distributed_c10d.py"
BOOTSTRAP = str(Path("multiprocessing", "process.py"))
FRAME_LINE = re.compile(
    r'^  File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<name>.+))?$',
    re.MULTILINE,
)
# A message may quote a traceback, indented.
BEGIN = re.compile(r"^(?:\S.*)?Traceback \(", re.MULTILINE)
# What faulthandler puts above the stack of a thread.
THREAD = re.compile(r"^(Current t|T)hread .*\(most recent call first\):$", re.MULTILINE)
FATAL = "Fatal Python error: "
LONGEST_ERROR = 2000  # characters
# What each traceback of a rank begins with, and says nothing: how the program came to
# its `main`, and the frame of torch's @record.
RECORD = re.compile(
    r'^  File ".+elastic.multiprocessing.errors.+, in wrapper\n(?:    .*\n)+', re.M
)
TO_MAIN = re.compile(
    r"^(Traceback \(.+\n)(?:  File .+\n(?:    .*\n)*)+?(?=  File .+, in main\n)", re.M
)
# Frames of a traceback that follow each other, with their source.
CALLS = re.compile(r'^  File ".+\n(?:  (?:File ".+|  .*|\[Previous .+)\n)*', re.M)
CALL = re.compile(r'(?=^  File ")', re.M)
MOST_CALLS = 6  # of which none is left out
PACKAGE = re.compile(r"(?:site|dist)-packages/(\w+)")


@dataclass(frozen=True)
class Frame:
    """One call on a stack."""

    file: str
    line: int
    name: str
    values: dict[str, str] = field(default_factory=dict, repr=False)
    """Local variables as text, where they are known."""

    @property
    def own(self) -> bool:
        """Whether the frame belongs to the program, not to a library or to us."""
        library = self.standard or any(part in self.file for part in LIBRARY)
        return not (library or self.file.startswith("<") or OURS.search(self.file))

    @property
    def begins_child(self) -> bool:
        """Whether a child of multiprocessing begins here; a fork has more below it."""
        return self.name == "_bootstrap" and self.file.endswith(BOOTSTRAP)

    @property
    def standard(self) -> bool:
        """Whether the frame belongs to Python's standard library."""
        return bool(STANDARD.search(self.file)) or self.file.startswith("<frozen")

    @property
    def source(self) -> list[str]:
        """The lines of its file as they are now; none if they are not to be had."""
        linecache.checkcache(self.file)  # a variant may have been written anew
        return linecache.getlines(self.file)

    @cached_property
    def code(self) -> str:
        """The source line, without its comment."""
        line = "".join(self.source[self.line - 1 : self.line])
        return clean(line).split("  # ")[0].strip()

    @property
    def place(self) -> str:
        """`sick.py:45 in pass_on: dist.send(token, dst=right)`."""
        name = f" in {self.name}" if self.name else ""
        return f"{self.short}{name}: {self.code}".removesuffix(": ")

    @property
    def short(self) -> str:
        """`sick.py:45`, from the current folder if it is below."""
        path = Path(self.file)
        if path.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
        return f"{path}:{self.line}"


def own(stack: list[Frame]) -> Frame | None:
    """Return the innermost frame that is the program's."""
    return next((frame for frame in stack if frame.own), None)


def brief(traceback: str, error: str) -> str:
    """Return what a traceback tells beside its last line, `error`, and one frame."""
    text = TO_MAIN.sub(r"\1", RECORD.sub("", traceback)).rstrip()
    text = CALLS.sub(lambda calls: _without_library(calls[0]), text)
    text = text.removesuffix(error).rstrip()
    return "" if len(_frames(text)) == 1 else text


def _without_library(calls: str) -> str:
    """Return many calls of a traceback with a count in the place of a library's.

    The innermost one stays, which says where it was raised; all stay if none is own.
    """
    texts, frames = CALL.split(calls)[1:], _frames(calls)
    if len(texts) <= MOST_CALLS or not any(frame.own for frame in frames):
        return calls
    parts: list[str] = []
    outer = zip(texts[:-1], frames, strict=False)
    for own, group in groupby(outer, key=lambda call: call[1].own):
        shown, there = zip(*group, strict=True)
        parts += shown if own else [_count(there)]
    return "".join([*parts, texts[-1]])


def _count(frames: Sequence[Frame]) -> str:
    """Return, say, `  … 12 frames of lightning, torch …`."""
    matches = [PACKAGE.search(frame.file) for frame in frames]
    names = dict.fromkeys(match[1] if match else "Python" for match in matches)
    what = "frames" if len(frames) > 1 else "frame"
    return f"  … {len(frames)} {what} of {', '.join(names)} …\n"


def same_line(one: list[Frame], other: list[Frame]) -> bool:
    """Tell whether two stacks are at the same line of the program."""
    lines = [(f.file, f.line) if (f := own(stack)) else None for stack in (one, other)]
    return lines[0] == lines[1]


def parting(ways: Collection[Sequence[Frame]]) -> int | None:
    """Return at which step ways through a program part, each from the outermost call.

    None if they do not, or have not begun in one function, as a thread has not.
    """
    if len({(way[0].file, way[0].name) if way else None for way in ways}) > 1:
        return None
    steps = zip_longest(*([frame.short for frame in way] for way in ways))
    return next((at for at, step in enumerate(steps) if len({*step}) > 1), None)


def from_text(text: str) -> list[Frame]:
    """Return the frames of a traceback, or of the thread that faulthandler tells of."""
    if (told := _thread(text)) is None:  # a traceback has the innermost call last
        return _frames(_last_traceback(text))[::-1]
    return _frames(told)


def _thread(text: str) -> str | None:
    """Return what faulthandler has of the thread that has crashed, or the main one.

    The main thread is listed last, and of several dumps the last one counts.
    """
    if not THREAD.search(text):
        return None
    starts = [match.start() for match in THREAD.finditer(text)]
    threads = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    crashed = [t for t in threads if FATAL in text and t.startswith("Current")]
    return next((t for t in crashed[-1:] if own(_frames(t))), threads[-1])


def tidy(text: str) -> str:
    """Return faulthandler's dump of one thread, and without our frames."""
    if (told := _thread(text)) is None:
        return text
    head = THREAD.split(text)[0]
    lines = told.split("\nExtension modules:")[0].splitlines()
    return head + "\n".join(line for line in lines if not OURS.search(line)) + "\n"


def last_error(text: str) -> str:
    """Return the last exception's own line in `text` (it may go on over several)."""
    lines = [line for line in _last_traceback(text).splitlines() if line.strip("=- ")]
    # Frames are indented, by two and four; what comes after the last one is the error.
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    rest = lines[frames[-1] + 1 if frames else 1 :]
    while rest and rest[0].startswith(("    ", "  [Previous line repeated")):
        del rest[0]
    return one_line("\n".join(rest))


def one_line(error: str) -> str:
    """Return the words of an exception on one line that is not too long."""
    lines = [line.strip() for line in error.splitlines() if line.strip("=- ")]
    words = " ".join(lines)
    return words if len(words) <= LONGEST_ERROR else f"{words[:LONGEST_ERROR]}…"


def _last_traceback(text: str) -> str:
    """Return the last traceback that is not torchrun's own report of its workers'."""
    texts = ["Traceback (" + part for part in BEGIN.split(text)[1:]]
    own = [part for part in texts if f"{REPORT}: \n" not in part]
    return (own or texts or [""])[-1]


def _frames(text: str) -> list[Frame]:
    return [
        Frame(match["file"], int(match["line"]), match["name"] or "")
        for match in FRAME_LINE.finditer(text)
    ]


def from_lists(frames: list | None) -> list[Frame]:
    """Return the frames of which errors.py has kept file, line and function."""
    return [Frame(*frame) for frame in frames or []]


def starts_up(stack: list[Frame]) -> bool:
    """Tell whether a process still imports what its program needs."""
    outer: list[Frame] = []
    for frame in reversed(stack):
        if frame.file.startswith("<frozen importlib"):
            return all(each.name == "<module>" for each in outer)
        outer += [frame] if frame.own else []
    return False


def joins(stack: list[Frame]) -> bool:
    """Tell whether a process joins its group; a device may take seconds for it."""
    return any(frame.name == "init_process_group" for frame in stack)


def from_json(frames: list[dict] | None) -> list[Frame]:
    """Return the frames that were stored as JSON by `dataclasses.asdict`."""
    return [Frame(**frame) for frame in frames or []]

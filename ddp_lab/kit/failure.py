"""Find out why a run failed: which rank, which line, and in which words.

torchrun names the failure that it saw first, which is often the victim: the rank whose
peer has gone complains at once. So every rank's own evidence is read here, and whoever
only noticed that somebody else had gone comes last.
"""

import linecache
import re
import signal
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from ddp_lab.kit.logs import RankLog

# What a rank says when another rank, not itself, is the cause.
FOLLOW_UP = re.compile(
    r"Connection (closed|reset) by peer|connectFullMesh failed|Broken pipe"
    r"|remote process exited|NCCL communicator was aborted|recvValue failed"
    r"|failed to recv, got 0 bytes|Connection was likely closed|Socket closed"
)
USUAL_SENDER = {
    "SIGKILL": "usually sent by the system when memory runs out",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "a crash in native code, or a failed check there",
    "SIGBUS": "often a full /dev/shm",
}
FRAME = re.compile(
    r'^\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<name>.+))?$',
    re.MULTILINE,
)
ENDED = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")


@dataclass(frozen=True)
class Failure:
    """Why a run failed."""

    kind: str
    """"exception", "signal", "exit", "timeout", or "launch" if no rank was started."""
    rank: int | None
    """The rank that failed first; None when no rank is to blame alone."""
    cause: str
    """One line: the exception, the signal or the exit code."""
    where: str | None = None
    """The program's own line, as in `ddp_lab/p2p_ring.py:45 in pass_token`."""
    traceback: str = field(default="", repr=False)
    others: dict[int, str] = field(default_factory=dict)
    """Ranks that failed too, or, after a time-out, where each rank stood. A rank that
    only lost its connection to one that had gone is left out."""

    def report(self, traceback: bool = True) -> str:
        """Return the cause, then the evidence, then the other ranks."""
        who = "the run" if self.rank is None else f"rank {self.rank}"
        text = [f"{who}: {self.cause}"]
        if self.where:
            text.append(f"  at {self.where}")
        if traceback and self.traceback:
            text.append("\n" + self.traceback.rstrip() + "\n")
        text += [f"  rank {rank}: {what}" for rank, what in self.others.items()]
        return "\n".join(text)


@dataclass(frozen=True)
class _Evidence:
    """What one rank left behind."""

    kind: str
    cause: str
    where: str | None
    traceback: str
    time: float

    def follows(self) -> bool:
        """Tell whether the rank only noticed that another one had gone."""
        return bool(FOLLOW_UP.search(self.cause)) or "SIGTERM" in self.cause

    def order(self) -> tuple[int, float]:
        """Sort key: whoever died without a word, then who raised, then the victims."""
        if self.follows():
            return (3 if self.traceback else 4), self.time
        if "SIGABRT" in self.cause:
            return 2, self.time
        return (1 if self.kind == "exception" else 0), self.time


def find_failure(
    logs: list[RankLog], agent: str, code: int, timeout: float | None
) -> tuple[Failure, list[int | None]]:
    """Return why the run failed, and the exit code of each rank that ended by itself.

    Args:
        logs: what each rank wrote.
        agent: torchrun's own stderr.
        code: exit code of the whole command.
        timeout: the seconds that the run was given, if it used them up.
    """
    codes = {int(rank): int(code) for rank, code in ENDED.findall(agent)}
    exit_codes = [codes.get(rank) for rank in range(len(logs))]
    if timeout is not None:
        stands = {rank: _stand(log) for rank, log in enumerate(logs)}
        cause = f"no end after {timeout:g} seconds; all processes were stopped"
        return Failure("timeout", None, cause, others=stands), exit_codes
    if len(logs) == 1 and exit_codes == [None]:
        exit_codes = [code]
    evidence = {
        rank: found
        for rank, log in enumerate(logs)
        if (found := _evidence(log, exit_codes[rank]))
    }
    if not evidence:
        last = [line for line in agent.splitlines() if line.strip()][-1:] or [
            f"{code=}"
        ]
        return Failure("launch", None, last[0].strip(), traceback=agent), exit_codes
    first = min(evidence, key=lambda rank: evidence[rank].order())
    found = evidence.pop(first)
    others = {
        rank: _shorten(other.cause)
        for rank, other in sorted(evidence.items())
        if not other.follows()
    }
    failure = Failure(
        found.kind, first, found.cause, found.where, found.traceback, others
    )
    return failure, exit_codes


def _evidence(log: RankLog, code: int | None) -> _Evidence | None:
    """Return what a rank left behind; None if nothing says that it failed."""
    where, died = _where(log.traceback), code is not None and code < 0
    if died and not (code == -signal.SIGTERM and log.traceback):
        name = signal.Signals(-code).name
        sender = f" ({USUAL_SENDER[name]})" if name in USUAL_SENDER else ""
        cause = f"ended by {name}{sender}"
        return _Evidence("signal", cause, where, log.traceback, log.time)
    if log.traceback:
        cause = _cause(log.traceback)
        return _Evidence("exception", cause, where, log.traceback, log.time)
    if code:
        said = f": {log.warnings[-1]}" if log.warnings else ""
        return _Evidence("exit", f"exit code {code}{said}", None, "", log.time)
    return None


def _cause(traceback: str) -> str:
    """Return the exception's line (its message may go on over several)."""
    lines = traceback.rstrip().splitlines()
    after = max((i for i, line in enumerate(lines) if line.startswith(" ")), default=-1)
    return " ".join(line.strip() for line in lines[after + 1 :]) or lines[-1]


def _where(traceback: str) -> str | None:
    """Return the last frame of `traceback` that is the program's own."""
    own = [
        frame
        for frame in FRAME.finditer(traceback)
        if "site-packages" not in frame["file"]
        and not frame["file"].startswith(LIBRARY)
    ]
    if not own:
        return None
    # A Python traceback has the most recent call last, a faulthandler dump first.
    frame = own[0] if "most recent call first" in traceback else own[-1]
    path, number = Path(frame["file"]), int(frame["line"])
    linecache.checkcache(str(path))  # a variant may have been written anew
    code = linecache.getline(str(path), number).strip()
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    name = f" in {frame['name']}" if frame["name"] else ""
    return f"{path}:{number}{name}: {code}".removesuffix(": ")


def _stand(log: RankLog) -> str:
    """Return where a rank stood when it was stopped."""
    where = _where(log.traceback)
    if where:
        return f"stood at {where}"
    return f"last printed {log.lines[-1]!r}" if log.lines else "printed nothing"


def _shorten(text: str, width: int = 140) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"

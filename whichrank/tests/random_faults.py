"""Faults drawn at random, and a judge who knows the truth of each.

    python -m tests.random_faults [--seed 7] [--count 100] [--jobs 3] [--only N ...]

Every number stands for one fault: which rank misbehaves, when and how, what the others
do about it, and how they are started (see random_programs.py). It depends on the seed
and on the number alone. The truth is known by construction, and what the launcher tells
is compared with it. With --only some faults happen again, and their programs and
reports are shown.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from time import monotonic, sleep
from unittest import mock

import psutil
from launched import WARM, torchrun
from random_programs import NOTHING, Fault, draw

from whichrank import Limits, Run
from whichrank.run.here import environment

CLEARLY = 0.15  # seconds by which the first of two deeds has to be the earlier one
QUICK = Limits(silence=5, first_sign=5)
# Where each rank imports torch, and then takes it down, on a busy machine.
SLOW = Limits(silence=15, first_sign=45)
RETURNS = 120  # seconds that the launcher has to return
GONE = 3.0  # seconds that the system has to take a killed process down


# --- the truth ---


@dataclass(frozen=True)
class Truth:
    """What has to be told of a fault."""

    fails: bool = True
    succeeds: bool = False
    """Both may be: who survives a lost connection may make a success of it."""
    ranks: frozenset[int | None] = frozenset()
    """Who may be named as the one to blame; None: nobody."""
    line: str = ""
    """Text of the line that has to be named; empty: that cannot be known."""
    says: str = ""
    """A regular expression of what a failure has to say."""
    warning: str = ""
    """A regular expression of a warning that a success has to have."""
    note: str = ""
    """A regular expression of a note that a success has to have."""


def truth(fault: Fault) -> Truth:
    """Return what has to be told of `fault`."""
    right = _truth(fault)
    if fault.restarts.name and right.fails and _survived(fault):
        # Ranks that do not meet again after a restart may take that for a lost peer,
        # and leave; then a note has to tell of the first attempt.
        note = "attempt 1 of 2 failed: rank"
        return replace(right, succeeds=True, note=right.note or note)
    return right


def _truth(fault: Fault) -> Truth:
    if harmless(fault):
        return _harmless(fault)
    if not fault.alone:
        return _two(fault)
    known = Truth(ranks=frozenset([fault.who]), says=fault.deed.says)
    if fault.deed.kind == "strays":
        return _astray(fault, known)
    if fault.deed.kind == "leaves":
        # Whoever hangs in init_process_group loses no connection.
        survives = _survived(fault) and fault.place.name != "before init"
        # Of two, one of which has ended well, nobody knows which one is right.
        who = frozenset([fault.who, None] if fault.ranks == 2 else [fault.who])
        return replace(known, ranks=who, succeeds=survives, note=_names(fault))
    return replace(known, line=fault.deed.line)


def harmless(fault: Fault) -> bool:
    """Tell whether the program succeeds, as Python defines it."""
    deed, place = fault.deed, fault.place.name
    if deed.raises and place in ("in a thread", "at exit"):
        return True  # it ends the thread or the exit function, and no more
    late = deed.kind == "leaves" and place in ("after destroy", "at exit")
    return late or deed == NOTHING


def _harmless(fault: Fault) -> Truth:
    early = fault.deed.code == "os._exit(0)" and fault.place.name == "after destroy"
    return Truth(
        fails=False,
        succeeds=True,
        warning="" if "exit" in fault.deed.code else fault.deed.says,
        note=_names(fault) if early else "",
    )


def _names(fault: Fault) -> str:
    """Return what a note of a rank that has left has to match."""
    return rf"ranks? [\d, and]*\b{fault.who}\b"


def _two(fault: Fault) -> Truth:
    """Return what has to be told of two deeds: the earlier one, if that is clear."""
    first, second, who = fault.deed, fault.second, {fault.who, fault.second_who}
    assert fault.delay is not None
    if first.kind == "dies" and fault.delay > CLEARLY:
        known = replace(fault, second=NOTHING)
        return _truth(known)
    if {first.kind, second.kind} == {"hangs"}:
        return Truth(ranks=frozenset([*who, None]))
    return Truth(ranks=frozenset(who))


def _astray(fault: Fault, known: Truth) -> Truth:
    """Return what has to be told of a rank that does something else than the others."""
    who: set[int | None] = {fault.who}
    if fault.ranks == 2:
        who = {0, 1, None}  # of two that differ, neither is the odd one
    elif fault.exchange.name == "ring" or _survived(fault):
        who.add(None)  # of which there is no record, nor of whoever ends well
    # Bytes are taken for what they are not, and a record shows that; of a root it has
    # no word. Some of these come through.
    unnoticed = fault.deed.only in ("all_reduce", "broadcast")
    noted = fault.deed.only == "all_reduce"
    return replace(
        known,
        ranks=frozenset(who),
        succeeds=unnoticed or _survived(fault),
        note="not the same on all ranks" if noted else "",
    )


def _survived(fault: Fault) -> bool:
    return "return" in fault.on_loss.code


# --- what was told ---


@dataclass(frozen=True)
class Told:
    """What the launcher has made of a run, and what it has left behind."""

    seconds: float
    failed: bool = False
    rank: int | None = None
    line: str = ""
    """The text of the line that it named."""
    report: str = ""
    warnings: str = ""
    notes: str = ""
    trouble: str = ""
    """What it raised instead of a RunFailed that has a run."""
    survivors: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        return self.report.partition("\n")[0]

    @property
    def worded(self) -> bool:
        """Whether the headline is a cause, and more than that there was no end."""
        return not re.search(r"Traceback \(|no end after|: $", self.headline)


def judge(right: Truth, told: Told) -> list[str]:
    """Return what is wrong with what was told: words of `WRONG`."""
    if told.trouble:
        return ["trouble"]
    wrong = ["survivors"] if told.survivors else []
    if told.failed and not right.fails:
        return [*wrong, "false failure"]
    if not told.failed and not right.succeeds:
        return [*wrong, "false success"]
    if told.failed:
        tests = {
            "rank": told.rank in right.ranks,
            "line": right.line in told.line,
            "cause": re.search(right.says, told.report) and told.worded,
        }
    else:
        tests = {
            "warning": re.search(right.warning, told.warnings),
            "note": re.search(right.note, told.notes),
        }
    return wrong + [name for name, passed in tests.items() if not passed]


WRONG = {
    "rank": "another rank was named",
    "line": "another line was named",
    "cause": "the cause was not told",
    "warning": "a success without the warning",
    "note": "a success without the note",
    "false success": "a success that is none",
    "false failure": "a failure that is none",
    "survivors": "processes live on",
    "trouble": "the launcher itself failed",
}


# --- runs ---


@dataclass(frozen=True)
class Verdict:
    """A fault that has happened, and what is wrong with what was told of it."""

    fault: Fault
    told: Told
    wrong: list[str]

    def __str__(self) -> str:
        told = self.told
        first = told.trouble or told.headline or "ok"
        words = [first, *filter(None, [told.line and f"[{told.line}]", told.notes])]
        words += [f"SURVIVORS {told.survivors}"] * bool(told.survivors)
        head = f"{self.fault.number:4} {told.seconds:5.1f} s"
        mark = f"WRONG {', '.join(self.wrong)}" if self.wrong else "right"
        return f"{head} {mark}: {self.fault}\n{'':11} told: {' '.join(words)[:300]}"


def happen(seed: int, number: int) -> Verdict:
    """Let a fault happen, in a folder of its own, and judge what is told of it."""
    fault = draw(seed, number)
    with tempfile.TemporaryDirectory(prefix="random-fault-") as folder:
        here = Path(folder)
        for name in ("ranks", "children", "runs"):
            (here / name).mkdir()
        program = here / "sick.py"
        program.write_text(fault.program())
        marked = mock.patch.dict(os.environ, {"DDP_LAB_TEST": folder})
        with marked, mock.patch("tempfile.tempdir", f"{folder}/runs"):
            told = _launched(fault, program)
        told = replace(told, survivors=tuple(_ended(here)))
        if left := [path.name for path in (here / "runs").iterdir()]:
            told = replace(told, trouble=f"left {left}")
    return Verdict(fault, told, judge(truth(fault), told))


def _launched(fault: Fault, program: Path) -> Told:
    """Run the program; return what the launcher tells."""
    start, run = monotonic(), None
    old = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(RETURNS)
    try:
        run = _launch(fault, program)
    except Exception as error:
        run = getattr(error, "run", None)
        if run is None:  # a mistake of the launcher
            return Told(monotonic() - start, trouble=repr(error))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    failure, lines = run.failure, program.read_text().splitlines()
    told = Told(
        monotonic() - start,
        failed=failure is not None,
        warnings="\n".join(line for lines in run.warnings for line in lines),
        notes="; ".join(run.notes),
    )
    if failure is None:
        return told
    line = lines[failure.line - 1].strip() if failure.line else ""
    return replace(told, rank=failure.rank, line=line, report=failure.report())


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"the launcher has not returned after {RETURNS} seconds")


def _launch(fault: Fault, program: Path) -> Run:
    cold = bool(fault.cold.name)
    limits = SLOW if cold else QUICK
    words = f"{fault.restarts.name} --nproc-per-node {fault.ranks} {program}"
    return torchrun(words, limits=limits, cold=cold)


def _ended(here: Path) -> Iterator[str]:
    """Name each process of the run in `here` that is still there, and end it."""
    deadline = monotonic() + GONE
    while (found := _living(here)) and monotonic() < deadline:
        sleep(0.1)
    for process in found:
        try:
            yield f"{process.pid} {' '.join(process.cmdline())[-80:]}"
            process.kill()
        except psutil.Error:
            continue


def _living(here: Path) -> list[psutil.Process]:
    """Return the living processes of the run in `here`.

    They have its mark; or their group or their session is a rank's; or they have said
    themselves who they are.
    """
    since = (here / "sick.py").stat().st_mtime - 1
    ranks = {int(path.name) for path in (here / "ranks").iterdir()}
    children = {int(path.name) for path in (here / "children").iterdir()}
    found = []
    for process in psutil.process_iter():
        pid = process.pid
        try:
            its = pid in children or {os.getpgid(pid), os.getsid(pid)} & ranks
            its = its or process.environ().get("DDP_LAB_TEST") == str(here)
            its = its and process.create_time() > since  # numbers are used again
            if its and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or somebody else's
    return found


def happen_all(seed: int, numbers: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """Let faults happen, `jobs` at a time; yield each verdict when it is there."""
    with mock.patch.dict(os.environ):
        WARM.lend(environment())
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            runs = [pool.submit(happen, seed, number) for number in numbers]
            for run in as_completed(runs):
                yield run.result()


@dataclass(frozen=True)
class Summary:
    """What became of many faults."""

    verdicts: list[Verdict]

    @property
    def right_rank(self) -> float:
        """The share of the right rank among the failures that were seen as such."""
        seen = [v for v in self.verdicts if v.told.failed and truth(v.fault).fails]
        return sum("rank" not in v.wrong for v in seen) / max(len(seen), 1)

    def wrong(self, name: str) -> list[int]:
        """Return the numbers of the faults with this mistake, one of `WRONG`."""
        return sorted(v.fault.number for v in self.verdicts if name in v.wrong)

    def __str__(self) -> str:
        seconds = sum(verdict.told.seconds for verdict in self.verdicts)
        each = seconds / max(len(self.verdicts), 1)
        text = f"{len(self.verdicts)} runs, {each:.1f} s each; "
        text += f"right rank: {self.right_rank:.1%} of the failures\n"
        for name, means in WRONG.items():
            numbers = self.wrong(name)
            again = f"  --only {' '.join(map(str, numbers))}" if numbers else ""
            text += f"{len(numbers):4} {means}{again}\n"
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=3, help="runs at the same time")
    parser.add_argument("--only", type=int, nargs="+", metavar="N")
    asked = parser.parse_args()
    verdicts = []
    numbers = asked.only or range(asked.count)
    for verdict in happen_all(asked.seed, numbers, asked.jobs):
        verdicts.append(verdict)
        if asked.only:
            print(f"{verdict.fault.program()}\n{verdict.told.report}")
        print(verdict, flush=True)
    print(f"\nseed {asked.seed}: {Summary(verdicts)}", end="")
    sys.exit(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    main()

"""Twelve faults against the tools that there are: who names the rank, line and cause?

    make -C whichrank table          all pairs (25 minutes), one after the other
    python bench/compare.py -k lock  those of one fault, or of one tool
    python bench/compare.py --rest   those that are not kept
    python bench/compare.py --judge  the rules once more, on what is kept

Each fault is a program in faults/. Its lines that a reader needs end with `# the
fault`. A tool's whole output is kept in build/compare/, and judged by these rules:

    rank    the tool says of the rank at fault alone that it is the one: torchrun by its
            "Root Cause", DETAIL by "Ranks 1 failed to pass", torchfrtrace by "missing
            ranks", whichrank by the head of its report. py-spy names no one: it counts
            if one rank alone stands outside torch.distributed. Where the calls of two
            ranks do not match it counts as well, as "ranks", if both calls are told.
    line    one of the marked lines is in the output, as FILE:LINE or as Python has it.
    cause   the words of the fault's own pattern are in the output.
    seconds from the launch until the output is complete.
    left    processes of the run that live two seconds after its launcher has ended,
            or 17 after its Ctrl-C.

Who must be told when to look looks after QUIET seconds without output or, before a
first step, after START; `whichrank torchrun` has the former as its --timeout. The
groups of the programs time out after 30 seconds (torch's default is 30 minutes). A
launcher that still waits after CEILING seconds gets a Ctrl-C.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

BENCH = Path(__file__).resolve().parent
KEPT = BENCH.parent / "build" / "compare"
TABLE, README = BENCH / "table.md", BENCH.parent / "README.md"
BEGIN, END = "<!-- the table of bench/compare.py -->", "<!-- end of the table -->"
QUIET, START, CEILING = 12.0, 30.0, 60.0  # seconds
MARK = "COMPARE_RUN"  # in the environment of all processes of a pair
BIN = Path(sys.executable).parent
DETAILED, RECORDED = str(BENCH / "detailed.py"), str(BENCH / "recorded.py")
MISMATCH = r"collective mismatch|mismatch between collectives|different sizes|call \d+ "
MISMATCH += r"is|different calls|COLLECTIVE_TYPE_MISMATCH"
ABSENT = r"has not come|failed to pass monitoredBarrier|missing ranks"

NOTES = f"""
¹ The host's: its allocator refuses. ² All ranks train on the same samples; in the last
column this is `whichrank examine`. – The job had ended before anyone could look.

- Seconds are from launch. Of those, {QUIET:.0f} are the patience of whoever looks, and
  of `whichrank torchrun --timeout {QUIET:.0f}`. The group of a script times out after
  30 seconds; torch's default, and that of a mesh, is 30 minutes.
- After "> 60 s" a Ctrl-C ended the launcher; what it then printed counts.
- `DETAIL` over gloo ends a sound DDP script by SIGSEGV in torch 2.14.1. Here a part of
  DDP's telemetry is off, so that the rest can be judged.
- `torchfrtrace` cannot read what the flight recorder keeps of gloo (`KeyError`, torch
  2.14.1). Here the names of the groups are put in. NCCL was not tried.
- "n left" are processes that still live after the launcher's end, or a Ctrl-C.
"""


@dataclass(frozen=True)
class Fault:
    """One program, and what a tool should say of it."""

    name: str
    title: str
    cause: str
    """A pattern: words that tell it."""
    rank: int | None = 1
    """The one at fault; None if it is none."""
    each: tuple[str, ...] = ()
    """Where calls do not match: patterns for what each rank does; if all are told, it
    counts as well."""
    launch: str = "--standalone --nproc-per-node 2"

    @property
    def file(self) -> Path:
        """The program."""
        return BENCH / "faults" / f"{self.name}.py"

    @property
    def lines(self) -> list[int]:
        """The numbers of its marked lines, from 1."""
        text = self.file.read_text().splitlines()
        return [n for n, line in enumerate(text, 1) if line.endswith("# the fault")]


def differ(what: str, other: str) -> tuple[str, ...]:
    """Return patterns for what ranks 0 and 1 do, in the words of any tool."""
    return tuple(
        rf"(?i)rank {rank}\b[^\n]{{0,160}}{does}|{does}[^\n]{{0,70}}rank {rank}\b"
        rf"|expected collective type: '{does}'"
        for rank, does in enumerate((what, other))
    )


APART = "--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port 29617 "
FAULTS = (
    Fault("raises", "one rank raises", "could not convert string to float: 'n/a'"),
    Fault(
        "skips",
        "one rank skips a batch",
        MISMATCH,
        each=differ(r"[\[(]9,?[\])]", r"(?:TensorShape=\[\]|float32 \(\))"),
    ),
    Fault(
        "shapes",
        "one rank brings another shape",
        r"different sizes|doesn't match expected size|shape|" + MISMATCH,
        each=differ(r"[\[(]4,?[\])]", r"[\[(]7,?[\])]"),
    ),
    Fault("leaves", "one rank leaves early", r"(?m)^rank 1: has left|exited early"),
    Fault("killed", "one rank is killed", r"SIGKILL|[Ss]ignal 9"),
    Fault("lock", "one rank waits in a lock", ABSENT),
    Fault("slow", "one rank's loader is slow", ABSENT),
    Fault(
        "crossed",
        "two calls are crossed",
        MISMATCH,
        rank=None,
        each=differ("all_?reduce", "barrier"),
    ),
    Fault(
        "mesh",
        "a straggler in a 2×2 mesh",
        ABSENT,
        rank=3,
        launch="--standalone --nproc-per-node 4",
    ),
    Fault(
        "apart",
        "the second node never comes",
        r"node has not come|waiting for .*node",
        rank=None,
        launch=APART + "--nproc-per-node 2",
    ),
    Fault("memory", "one rank runs out of memory ¹", r"can't allocate memory"),
    Fault("wrong", "all is well, but wrong ²", r"(?i)same samples", rank=None),
)


@dataclass(frozen=True)
class Told:
    """What a tool has told of a fault."""

    seconds: float
    """From the launch until all was told."""
    left: int | None
    """Processes that lived on; None if the tool does not end the job."""
    ended: str
    """"itself", "Ctrl-C" if it had to be ended, or "too late" if there was nothing
    left to look at."""
    text: str


class Job:
    """One launch, all of whose processes carry a mark."""

    def __init__(self, words: list[str], log: Path, **env: str) -> None:
        self.mark, self.log, self.began = uuid.uuid4().hex, log, time.monotonic()
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        env = os.environ | {"PATH": path, MARK: self.mark} | env
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                words, stdout=out, stderr=out, env=env, start_new_session=True
            )

    @property
    def seconds(self) -> float:
        """Since the launch."""
        return time.monotonic() - self.began

    def ranks(self) -> dict[int, int]:
        """Return the process of each rank that there is."""
        found = {}
        for each in self.alive():
            with suppress(psutil.Error):
                env, parent = each.environ(), each.parent()
                if "RANK" in env and parent and "RANK" not in parent.environ():
                    found[int(env["RANK"])] = each.pid
        return found

    def alive(self) -> list[psutil.Process]:
        """Return the processes of this launch that live."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.status() != psutil.STATUS_ZOMBIE:
                    if each.environ().get(MARK) == self.mark:
                        found.append(each)
        return found

    def wait(
        self, ceiling: float, quiet: float = CEILING, start: float = CEILING
    ) -> bool:
        """Wait for its end; return False if it is quiet, or alive, for too long."""
        size, since = 0, time.monotonic()
        while self.process.poll() is None:
            text = self.log.read_bytes()
            if len(text) != size:
                size, since = len(text), time.monotonic()
            elif time.monotonic() - since > (quiet if b"step" in text else start):
                return False
            if self.seconds > ceiling:
                return False
            time.sleep(0.1)
        return True

    def end(self) -> None:
        """End what is left, as a person would, and then for certain."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        for each in self.alive():
            with suppress(psutil.Error):
                each.kill()
        self.process.wait()


def launched(words: list[str], fault: Fault, log: Path, *by: str, **env: str) -> Told:
    """Let a launcher run a fault until it ends; it tells by itself."""
    job = Job([*words, *fault.launch.split(), *by, str(fault.file)], log, **env)
    return _until_end(job, CEILING)


def _until_end(job: Job, ceiling: float) -> Told:
    by_itself = job.wait(ceiling)
    told = job.seconds
    if not by_itself:
        os.killpg(job.process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            job.process.wait(15)
    time.sleep(2)
    left = len(job.alive())
    job.end()
    how = "itself" if by_itself else "Ctrl-C"
    return Told(told, left, how, job.log.read_text(errors="replace"))


def torchrun(fault: Fault, log: Path) -> Told:
    """Run a fault with what PyTorch brings."""
    return launched([str(BIN / "torchrun")], fault, log)


def detail(fault: Fault, log: Path) -> Told:
    """Run it with torch's own checks of every call."""
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    return launched([str(BIN / "torchrun")], fault, log, DETAILED, **env)


def looked_at(fault: Fault, log: Path, look: Callable[[Job], str], *by: str) -> Told:
    """Run a fault under torchrun, and look at it from outside when it is quiet."""
    words = [str(BIN / "torchrun"), *fault.launch.split(), *by, str(fault.file)]
    job = Job(words, log, TORCH_FR_BUFFER_SIZE="2000")
    ended = job.wait(2 * CEILING, QUIET, START)
    text = "" if ended and not by else look(job)
    told = job.seconds
    job.end()
    how = "too late" if ended and not text else "itself"
    return Told(told, None, how, text)


def flight(fault: Fault, log: Path) -> Told:
    """Dump the flight recorder of each rank, and have it read by torchfrtrace."""
    folder = log.with_suffix(".dumps")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def look(job: Job) -> str:
        (folder / "dump").touch()
        time.sleep(1)
        (folder / "dump").unlink()
        tool = [str(BIN / "torchfrtrace"), str(folder)]
        return "\n".join(
            _said(tool + more) for more in ([], ["--allow-incomplete-ranks"])
        )

    return looked_at(fault, log, look, RECORDED, str(folder))


def py_spy(fault: Fault, log: Path) -> Told:
    """Ask py-spy where each rank stands."""

    def look(job: Job) -> str:
        tool = [str(BIN / "py-spy"), "dump", "--pid"]
        of = job.ranks() or {-1: job.process.pid}  # no rank: of torchrun
        dumps = {rank: _said([*tool, str(pid)]) for rank, pid in sorted(of.items())}
        return "\n".join(f"=== {rank}\n{text}" for rank, text in dumps.items())

    return looked_at(fault, log, look)


def why(fault: Fault, log: Path) -> Told:
    """Ask whichrank about a job that plain torchrun has started."""
    tool = [str(BIN / "whichrank"), "why"]
    return looked_at(fault, log, lambda job: _said([*tool, str(job.process.pid)]))


def _said(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return f"{done.stdout}{done.stderr}"


def whichrank(fault: Fault, log: Path) -> Told:
    """Run a fault under whichrank."""
    tool = str(BIN / "whichrank")
    if fault.name == "wrong":
        words = [tool, "examine", "--nproc-per-node", "2", str(fault.file)]
        return _until_end(Job(words, log), CEILING)
    return launched([tool, "torchrun", "--timeout", f"{QUIET:g}"], fault, log)


# --- the rules ---


def by_pattern(pattern: str) -> Callable[[str], set[int]]:
    """Return a rule: the ranks that a pattern finds."""

    def named(text: str) -> set[int]:
        found = re.findall(pattern, text)
        return {int(n) for each in found for n in re.findall(r"\d+", each)}

    return named


def of_detail(text: str) -> set[int]:
    """Return the ranks that did not come or, if no one is told of, torchrun's."""
    absent = re.search(r"Ranks ([\d, ]+) failed to pass monitoredBarrier", text)
    return by_pattern(r"\d+")(absent[1]) if absent else of_torchrun(text)


def outside(text: str) -> set[int]:
    """Return the rank that stands outside torch.distributed, if it is one alone."""
    parts = re.split(r"=== (-?\d+)\n", text)[1:]
    dumps = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    main = {rank: dump.partition('"MainThread"')[2] for rank, dump in dumps.items()}
    main = {rank: dump.partition("\nThread")[0] for rank, dump in main.items()}
    inside = r"distributed_c10d\.py|torch/(distributed|autograd)/"
    found = {rank for rank, dump in main.items() if not re.search(inside, dump)}
    return found if len(found) == 1 else set()


of_torchrun = by_pattern(
    r"Root Cause[^\n]*\n\[0\]:\n[^\n]*\n[^\n]*\n?\s*rank\s*: (\d+)"
)
of_whichrank = by_pattern(r"(?m)^rank (\d+)(?: \([^)]*\))?: ")
of_flight = by_pattern(r"missing ranks:? \{([\d, ]+)\}")


@dataclass(frozen=True)
class Tool:
    """What a person has to find a fault."""

    name: str
    title: str
    run: Callable[[Fault, Path], Told]
    named: Callable[[str], set[int]]
    """The ranks that it says are at fault."""


TOOLS = (
    Tool("torchrun", "torchrun", torchrun, of_torchrun),
    Tool("detail", "… with `DETAIL`", detail, of_detail),
    Tool("flight", "`torchfrtrace`", flight, of_flight),
    Tool("py-spy", "`py-spy dump`", py_spy, outside),
    Tool("why", "`whichrank why`", why, of_whichrank),
    Tool("whichrank", "`whichrank torchrun`", whichrank, of_whichrank),
)


def cell(fault: Fault, tool: Tool, told: Told) -> str:
    """Return what the table says of a pair."""
    if told.ended == "too late":
        return "–"
    facts = []
    named = tool.named(told.text)
    if fault.each and all(re.search(each, told.text) for each in fault.each):
        facts.append("ranks")
    elif fault.rank is not None and named:
        one_of = f"one of {len(named)} ranks" if fault.rank in named else "*wrong rank*"
        facts.append("rank" if named == {fault.rank} else one_of)
    name = re.escape(fault.file.name)
    numbers = "|".join(map(str, fault.lines))
    if numbers and re.search(rf'{name}(:|", line )({numbers})\b', told.text):
        facts.append("line")
    if re.search(fault.cause, told.text):
        facts.append("cause")
    after = f"{'> ' * (told.ended == 'Ctrl-C')}{told.seconds:.0f} s"
    left = f", {told.left} left" if told.left else ""
    return f"{' '.join(facts) or 'nothing'}, {after}{left}"


def table(kept: dict[str, dict[str, Told]]) -> str:
    """Return all of it as a page."""
    heads = ["", *(tool.title for tool in TOOLS)]
    rows = [heads, ["---"] * len(heads)]
    for fault in FAULTS:
        of = kept.get(fault.name, {})
        cells = [cell(fault, t, of[t.name]) if t.name in of else "" for t in TOOLS]
        rows.append([fault.title, *cells])
    load = f"{os.cpu_count()} cores under a load of {os.getloadavg()[2]:.0f}"
    made = f"torch {version('torch')}, gloo, {load}"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    when = f"Measured on {time.strftime('%Y-%m-%d')}: {made}."
    return "\n".join([*lines, NOTES, when])


def load() -> dict[str, dict[str, Told]]:
    """Return what is kept of earlier runs."""
    kept: dict[str, dict[str, Told]] = {}
    for path in sorted(KEPT.glob("*.json")):
        fault, _, tool = path.stem.partition(".")
        kept.setdefault(fault, {})[tool] = Told(**json.loads(path.read_text()))
    return kept


def write(text: str) -> None:
    """Write the table where it is shown."""
    TABLE.write_text(f"{text}\n")
    head, begin, rest = README.read_text().partition(BEGIN)
    if begin:
        tail = rest.partition(END)[2]
        README.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")


def main() -> None:
    """Run the pairs that are asked for, and write the table."""
    parser = argparse.ArgumentParser(description="Compare tools on twelve faults.")
    parser.add_argument("-k", default="", metavar="NAME", help="a fault, or a tool")
    parser.add_argument("--rest", action="store_true", help="run what is not kept")
    parser.add_argument("--judge", action="store_true", help="run nothing")
    args = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    # A background shell starts us deaf to Ctrl-C, and so would be all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fault in FAULTS:
        for tool in TOOLS:
            pair = f"{fault.name}.{tool.name}"
            kept = args.rest and (KEPT / f"{pair}.json").exists()
            if args.judge or kept or args.k and args.k not in pair.split("."):
                continue
            told = tool.run(fault, KEPT / f"{pair}.log")
            (KEPT / f"{pair}.txt").write_text(told.text)
            (KEPT / f"{pair}.json").write_text(json.dumps(asdict(told)))
            print(f"{pair}: {cell(fault, tool, told)}", flush=True)
    write(table(load()))


if __name__ == "__main__":
    main()

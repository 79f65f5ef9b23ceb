"""Keep what runs left behind, for test_evidence.py to explain without a process.

    python tests/record_evidence.py [NAME ...]

Each fault of faults.py happens once more. tests/evidence/NAME.txt then holds the
program and what its ranks left, a section for each file of the run's log folder;
whatever differs from machine to machine is taken out, so that a new recording gives a
small diff. Who is then blamed is kept by `pytest --snapshot-update`, which
`make evidence` runs next. Read both diffs before you commit them. test_failures.py lets
the faults happen again, and compares.
"""

import argparse
import json
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import launched
from faults import FAULTS, Fault, brief
from support import HOUSE, SOURCE

from whichrank.explain.cause import Cause, Stand
from whichrank.explain.ends import HEADSTART
from whichrank.explain.failure import Failure
from whichrank.explain.find import find_failure, find_notes
from whichrank.explain.stands import PEER_ARGUMENT, ROOT_ARGUMENT
from whichrank.record.logs import TorchrunLog
from whichrank.run import live as live_run
from whichrank.run.result import Run, RunFailed

EVIDENCE = HOUSE / "tests" / "evidence"
KIT = str(SOURCE)
OF_RUN, OF_RANK = (
    ("out", "err"),
    ("pid", "stdout.log", "stderr.log", "flight.json", "answer.json")
    + ("seen.json", "stack.json", "stack")
    + ("raised.json", "left.json", "end.json", "exit.json"),
)
CALLS = ("flight.json", "answer.json")
ENDS = ("raised.json", "left.json", "end.json", "exit.json")
MOST_FRAMES, MOST_CALLERS = 10, 3  # of an exception, and of a call
# What a rank tells when it is asked, beside its calls.
TOLD = ("handles", "threads", "meets")
SECTION = re.compile(r"^=== (\S+)\n", re.MULTILINE)
# The local variables that an explanation reads.
ARGUMENTS = (PEER_ARGUMENT, ROOT_ARGUMENT)
READ = {name for each in ARGUMENTS for names in each.values() for name in names}
# What is not the same on two machines, or in two runs, and what stands in its place.
LIBRARY = r"<(?:site-packages|stdlib)>"
CHANGING: list[tuple[re.Pattern, str | Callable]] = [
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (rf'(File "(?:{LIBRARY}|{{kit}})[^"]*", line )\d+', r"\g<1>0"),
        (r"\b0x[0-9a-f]+", "0x0"),
        (r"[^\s'\"]*/whichrank-[\w-]+", "<lab>"),
        (r"\bport: \d+", "port: 0"),
        (r"\[(E|W|I)?\d{3,4} \d\d:\d\d:\d\d\.\d+", "[0"),
        (r"\b([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", r"\g<1>0 "),
        (r"^([EWI]0 )\S*/site-packages/", r"\1"),  # which may lie below this folder
        (r"(torch\S*\.(?:py|cpp|hpp|h)):\d+", r"\1:0"),
        # As long as before: an explanation cuts long messages short.
        (r"(?<=\.cc:)\d+|(?<=\]:)\d+", lambda found: "0" * len(found[0])),
        (r"\b(pid:? )\d+", r"\g<1>0"),
        (r"(time      : ).*", r"\g<1>0"),
        (r"(host      : ).*", r"\g<1>localhost"),
        (r"\blocalhost:\d+", "localhost:0"),
        (r'("process_group": )\d+', r"\g<1>0"),
        (r"(closing signal SIG\w+|via signal|Sending process|process) \d{3,}", r"\1 0"),
        (r"^frame #\d+: .*\n?", ""),  # of C++, with addresses
    )
]


@dataclass(frozen=True)
class Recording:
    """What one run left behind, in words that are the same on every machine."""

    name: str
    """The program's file name."""
    program: str
    """The program."""
    files: dict[str, str]
    """By path: as in the run's log folder, but a rank's folder is its number, after
    that of the attempt if it is not the first one."""

    def text(self) -> str:
        files = {self.name: self.program} | self.files
        return "".join(f"=== {name}\n{text}\n" for name, text in files.items() if text)

    @classmethod
    def load(cls, fault: Fault) -> "Recording":
        kept = (EVIDENCE / f"{fault.name}.txt").read_text(encoding="utf-8")
        _, name, program, *rest = SECTION.split(kept)
        files = {
            path: text.removesuffix("\n")
            for path, text in zip(rest[::2], rest[1::2], strict=True)
        }
        return cls(name, program.removesuffix("\n"), files)

    def lay_out(self, folder: Path) -> TorchrunLog:
        """Write the files to `folder`, and the program beside them; return the log."""
        folder.mkdir(exist_ok=True)
        (folder / self.name).write_text(self.program, encoding="utf-8")
        for name, text in self.files.items():
            rank, _, file = name.rpartition("/")
            attempt = rank if "/" in rank else f"0/{rank}"
            path = folder / (f"run/attempt_{attempt}/{file}" if rank else file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_local(text, folder), encoding="utf-8")
        return TorchrunLog.read(folder)

    @property
    def ending(self) -> tuple[int, str | None, float]:
        """How the run ended: what `find_failure` takes beside the log."""
        meta = json.loads(self.files["meta.json"])
        return meta["code"], meta["stopped"], meta["limit"]

    def explain(self, folder: Path) -> "Explanation":
        """Return what is made of it; it is laid out in `folder`."""
        log = self.lay_out(folder)
        failure, codes = find_failure(log, *self.ending)
        notes = [] if failure else find_notes(log)
        warnings = [rank.warnings for rank in log.ranks]
        return Explanation(folder, failure, codes, notes, warnings)


@dataclass(frozen=True)
class Explanation:
    """What is made of a run."""

    here: Path
    """The folder of the program."""
    failure: Failure | None
    exit_codes: list[int | None]
    notes: list[Cause]
    warnings: list[list[str]]

    def row(self) -> str:
        """Return what is kept of it: kinds, ranks and lines, and no sentence."""
        codes = " ".join("-" if code is None else str(code) for code in self.exit_codes)
        told = [f"exit codes {codes}", *map(_brief, self.notes)]
        if failure := self.failure:
            told.insert(0, ", ".join(filter(None, (failure.kind, failure.symptom))))
            told += map(_brief, (failure.why, *failure.also))
            told += [_brief(known, rank) for rank, known in failure.by_rank.items()]
            for ranks, cause in failure.attempts.ways if failure.attempts else ():
                told.append(f"attempts {' '.join(map(str, ranks))} {_brief(cause)}")
        return "; ".join(told)

    def differences(self, other: "Explanation") -> list[str]:
        """Return how this explanation of a fault differs from another one.

        Which of several victims complains first is chance.
        """
        pairs = zip(self._stable(), other._stable(), strict=True)
        return [f"{old} is kept, now it is {new}" for old, new in pairs if old != new]

    def _stable(self) -> list[str]:
        names = "kind", "symptom", "line"
        found = [f"{name} {getattr(self.failure, name, None)!r}" for name in names]
        notes = "; ".join(map(brief, self.notes))
        return [*found, f"notes {self._anywhere(notes)!r}"]

    def _anywhere(self, text: str) -> str:
        for path in (str(self.here), os.path.relpath(self.here)):
            text = text.replace(f"{path}/", "")
        return _anywhere(text)


def _brief(what: Cause | Stand, rank: int | None = None) -> str:
    """Return kind, ranks and line, as in `Absent 1 :16` or `0 waits for 1 :17`."""
    rank = what.rank if what.rank is not None else rank
    words = [] if rank is None else [str(rank)]
    if isinstance(what, Stand):
        words.append(what.state)
        words += ["for", *map(str, what.peers)] if what.peers else []
    else:
        words.insert(0, type(what).__name__)
    return " ".join(words + ([f":{what.frame.line}"] if what.frame else []))


def live(fault: Fault, ranks: int, here: Path) -> tuple[Recording, Run]:
    """Let a fault happen in the folder `here`; return what it has left behind."""
    name, text = fault.write()
    (here / name).write_text(text)
    with _listening() as heard, mock.patch.dict(os.environ, fault.env):
        options: dict = {"timeout": fault.timeout, "cold": fault.cold}
        options["expect_failure"] = fault.kind is not None
        if fault.port_taken:
            with socket.create_server(("", 0)) as server:
                where = f"--nnodes 1 --master-port {server.getsockname()[1]}"
                command = f"{where} --nproc-per-node {ranks} {here}/{name}"
                run = launched.torchrun(command, **options)
        else:
            how = f"{fault.options} --nproc-per-node {ranks}"
            run = launched.torchrun(f"{how} {here}/{name}", **options)
    first, last = heard["snapshots"][0], heard["snapshots"][-1]
    if heard["stopped"]:  # what the ranks did when they were ended counts for nothing
        stacks = {name: text for name, text in last.items() if name.endswith("/stack")}
        last = first | stacks
    meta = {name: heard[name] for name in ("code", "stopped", "limit")}
    last = _timeless(_without_ports(last))
    files = {"meta.json": json.dumps(meta)} | {
        name: _tidy(name, _anywhere(_placeless(text, here)))
        for name, text in sorted(last.items())
    }
    program = re.sub(r"notebooks/\w+\.ipynb", "a notebook", text)  # its number changes
    return Recording(name, program.rstrip("\n"), files), run


@contextmanager
def _listening():
    """Keep the log folder whenever it is read as a whole, and how the run ended."""
    heard: dict = {"snapshots": []}
    plain = TorchrunLog.read

    def reads(folder):
        heard["snapshots"].append(_snapshot(folder))
        return plain(folder)

    def finds(log, code, stopped, limit):
        heard.update(code=code, stopped=stopped, limit=limit)
        return find_failure(log, code, stopped, limit)

    with (
        mock.patch.object(live_run, "find_failure", finds),
        mock.patch.object(TorchrunLog, "read", staticmethod(reads)),
    ):
        yield heard


def _timeless(files: dict[str, str]) -> dict[str, str]:
    """Return the files with times of no clock.

    The order of events counts, and whether one came long enough after another not to
    be the same: a second later if it did, a millisecond if it did not.
    """
    found: dict[str, dict] = {
        name: json.loads(text)
        for name, text in files.items()
        if name.rpartition("/")[2] in ENDS
    }
    times = [end.get(key) for end in found.values() for key in ("time", "asked")]
    clock, now, before = {}, 0.0, 0.0
    for time in sorted({time for time in times if time}):
        now += (1 if time - before > HEADSTART else 0.001) if before else 1
        clock[time] = round(now, 3)
        before = time
    for end in found.values():
        end |= {key: clock[end[key]] for key in ("time", "asked") if end.get(key)}
    return files | {name: json.dumps(end) for name, end in found.items()}


def _without_ports(files: dict[str, str]) -> dict[str, str]:
    """Return the files with a number for each place where ranks mean to meet."""
    told = {n: json.loads(t) for n, t in files.items() if n.endswith(CALLS)}
    met = [place for each in told.values() for place in each.get("meets", [])]
    places = list(dict.fromkeys(met))
    for each in told.values():
        meets = [f"host:{places.index(p) + 1}" for p in each.pop("meets", [])]
        each |= {"meets": meets} if len(places) > 1 else {}
    return files | {name: json.dumps(each) for name, each in told.items()}


def _snapshot(folder: Path) -> dict[str, str]:
    paths = {path.name: path for name in OF_RUN for path in folder.glob(name)}
    for name in OF_RANK:
        for path in folder.glob(f"*/attempt_*/*/{name}"):
            paths[f"{_rank(path)}/{name}"] = path
    kept = {name: path.read_text(errors="replace") for name, path in paths.items()}
    # What SIGTERM made a rank write is read only if nobody has seen where it stood.
    return {name: text for name, text in kept.items() if f"{name}.json" not in kept}


def _rank(path: Path) -> str:
    """Return what names the rank, and the attempt, in whose folder a file is."""
    attempt = path.parts[-3].removeprefix("attempt_")
    return path.parent.name if attempt == "0" else f"{attempt}/{path.parent.name}"


def _places() -> dict[str, str]:
    """Return what stands for the folders of this machine: inner ones first."""
    stdlib = sysconfig.get_path("stdlib")
    return {
        KIT: "{kit}",
        sysconfig.get_path("purelib"): "<site-packages>",
        stdlib: "<stdlib>",
        os.path.realpath(stdlib): "<stdlib>",
        sys.prefix: "<prefix>",  # an environment may lie in the repository
        str(HOUSE.parent): "{root}",
    }


def _placeless(text: str, here: Path) -> str:
    for path, name in {str(here): "{here}", **_places()}.items():
        text = text.replace(path, name)
    return text


def _local(text: str, here: Path) -> str:
    """Return `text` with the folders of this machine, where an explanation asks."""
    text = text.replace("{here}", str(here))
    return text.replace("{kit}", KIT).replace("{root}", str(HOUSE.parent))


def _anywhere(text: str) -> str:
    for pattern, new in CHANGING:
        text = pattern.sub(new, text)
    return text


def _tidy(name: str, text: str) -> str:
    """Return the part of a file that an explanation reads, an entry on each line."""
    kind = name.rpartition("/")[2]
    if kind == "pid":
        return "0"
    if not kind.endswith(".json"):
        return text.rstrip("\n")
    found = json.loads(text)
    if kind == "raised.json":
        return json.dumps(found | {"frames": found.get("frames", [])[:MOST_FRAMES]})
    if kind in CALLS:
        for call in found["calls"]:
            call["frames"] = call["frames"][:MOST_CALLERS]
        groups, calls = json.dumps(found["groups"]), _lines(found["calls"])
        if handles := found.get("handles"):
            handles["frames"] = handles["frames"][:MOST_FRAMES]
        more = {name: found[name] for name in TOLD if found.get(name)}
        rest = json.dumps(more)[1:-1]
        rest = f"{rest}, " if rest else ""
        return f'{{{rest}"groups": {groups}, "calls": {calls}}}'
    if kind.startswith("stack"):
        return _lines([_tidy_frame(frame) for frame in found])
    if kind.startswith("seen"):
        for each in found["beside"]:
            each["stack"] = [_tidy_frame(frame) for frame in each["stack"]]
    return json.dumps(found)


def _tidy_frame(frame: dict) -> dict:
    """Return a frame of a stack with what an explanation reads of it."""
    values = {n: value for n, value in frame["values"].items() if n in READ}
    kit = frame["file"].startswith(("<", "{kit}"))
    return frame | {"values": values, "line": 0 if kit else frame["line"]}


def _lines(entries: list) -> str:
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]" if entries else "[]"


def happen(fault: Fault, ranks: int, here: Path) -> tuple[Recording, Run]:
    """Let a fault happen, and judge what is told of it; return what it has left.

    What it has left must be explained as the run itself was.
    """
    recording, run = live(fault, ranks, here)
    fault.judge(ranks, run, recording.program)
    told = recording.explain(here / "laid-out")
    fault.judge(ranks, told, recording.program)
    assert not (found := told.differences(replace(told, failure=run.failure))), found
    assert len(run.notes) == len(told.notes), run.notes
    return recording, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    asked = parser.parse_args()
    failed = 0
    for fault in FAULTS:
        if asked.names and fault.name not in asked.names:
            continue
        if sys.version_info < fault.since:
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="evidence-") as scratch:
                recording, _ = happen(fault, fault.recorded, Path(scratch))
            path = EVIDENCE / f"{fault.name}.txt"
            path.write_text(recording.text(), encoding="utf-8")
            print(fault.name, flush=True)
        except (AssertionError, RunFailed) as error:
            failed += 1
            print(f"{fault.name}: {error}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

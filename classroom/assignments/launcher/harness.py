"""Play jobs: fork a process that calls launch() for each, and watch its ranks.

There is one rank of ours, which watches. What the launcher starts are toys: each signs
in with its environment, then does what the judge has planned for it.
"""

import fcntl
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ranks import RUN_FOLDER, answer, give, inputs

GIVE_UP = 12.0  # seconds until a launcher is given up
TOLD = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
TOY = """
import fcntl, json, os, pathlib, signal, socket, sys, time

folder, job, pid = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), os.getpid()
rank = os.environ.get("RANK", "")
act = job["acts"][int(rank) if rank in map(str, range(len(job["acts"]))) else 0]

def told(number, frame):
    (folder / f"told {pid} {number}").touch()
    if act["told"] == "deaf":
        return
    time.sleep(act["saves"])
    (folder / f"saved {pid}").touch()
    os._exit(act["leaves"])

signal.signal(signal.SIGTERM, told), signal.signal(signal.SIGINT, told)
file = open(folder / f"new {pid}", "w")
fcntl.flock(file, fcntl.LOCK_EX)  # until this process ends
facts = {"env": dict(os.environ), "words": sys.argv[3:], "bound": None}
if job["binds"] and rank == "0":
    try:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        server = socket.create_server(address)
    except Exception as error:
        facts["bound"] = f"{type(error).__name__}: {error}"
json.dump(facts, file)
file.flush()
os.rename(file.name, folder / f"rank {pid}")
for i in range(job["lines"]):
    os.write(1, f"rank {rank} says {i} on out\\n".encode())
os.write(2, f"rank {rank} says 0 on err\\n".encode())
end = time.monotonic() + 60  # by then nobody looks after us any more
while not (folder / "go").exists() or act["do"] == "work":
    if time.monotonic() > end:
        os._exit(97)
    time.sleep(0.01)
time.sleep(act["after"])
if act["do"] == "die":
    os.kill(pid, act["code"])
(folder / f"done {pid}").touch()
os._exit(act["code"])
"""


class Job:
    """One call of launch(), in a process of its own."""

    def __init__(self, program: ModuleType, number: int, plan: dict):
        self.plan, self.there = plan, 0
        self.folder = RUN_FOLDER / f"job_{number}"
        self.folder.mkdir()
        self.live: dict[str, int] = {}
        self.pid = os.fork()
        if not self.pid:
            self._launch(program)

    def _launch(self, program: ModuleType) -> None:
        """Be the launcher."""
        report: dict[str, Any] = {"code": None, "error": None}
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            output = os.open(self.folder / "output", how, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for name in TOLD:  # what torchrun has told us is no news for the ranks
                os.environ.pop(name, None)
            os.environ["LAUNCHED_FROM"] = self.plan["mark"]
            command = [sys.executable, "-IS", "-c", TOY, str(self.folder)]
            command += [json.dumps(self.plan), *self.plan["words"]]
            code = program.launch(command, len(self.plan["acts"]), self.plan["grace"])
            report["code"] = code
            sys.stdout.flush()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            for line in reversed(traceback.extract_tb(error.__traceback__)):
                if line.filename.endswith("launcher.py"):
                    text += f" (launcher.py:{line.lineno})"
                    break
            report["error"] = text
        part = self.folder / "report.part"
        part.write_text(json.dumps(report, default=repr))
        part.replace(self.folder / "report")
        os._exit(0)

    def started(self) -> list[Path]:
        """Return the ranks that have signed in."""
        return list(self.folder.glob("rank *"))

    def said(self) -> dict[str, int]:
        """Return how many lines of each rank and stream have come through."""
        path = self.folder / "output"
        text = path.read_text(errors="replace") if path.exists() else ""
        found = set(re.findall(r"rank (\d+) says (\d+) on (out|err)", text))
        counts: dict[str, int] = {}
        for rank, _, stream in found:
            counts[f"{rank} {stream}"] = counts.get(f"{rank} {stream}", 0) + 1
        return counts

    def ended(self) -> bool:
        """Tell whether the launcher has ended."""
        if self.pid:
            pid, _ = os.waitpid(self.pid, os.WNOHANG)
            self.pid = 0 if pid else self.pid
        return not self.pid

    def ready(self) -> bool:
        """Tell whether all ranks are there, and heard if they have much to say."""
        count = len(self.plan["acts"])
        if self.ended() or len(self.started()) < count:
            return self.ended()
        wanted = count * (self.plan["lines"] + 1)
        return not self.plan["lines"] or sum(self.said().values()) >= wanted

    def go(self) -> None:
        """Let the ranks do their part, and the launcher be asked if that is planned."""
        self.there, self.live = len(self.started()), self.said()
        (self.folder / "go").touch()
        if self.plan["signal"] and not self.ended():
            os.kill(self.pid, getattr(signal, self.plan["signal"]))

    def facts(self) -> dict:
        """End what is left; return what has happened."""
        late = not self.ended()
        if late:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        time.sleep(0.2)  # a rank that is just being started signs in
        report = self.folder / "report"
        found: dict[str, Any] = {"code": None}
        found |= {"error": None if late else "its process was killed"}
        if report.exists():
            found = json.loads(report.read_text())
        ranks = []
        for path in self.started():
            pid = path.name.split()[1]
            told = [int(p.name.split()[2]) for p in self.folder.glob(f"told {pid} *")]
            about = json.loads(path.read_text())
            about |= {"left": was_left(path), "told": sorted(told)}
            about |= {n: (self.folder / f"{n} {pid}").exists() for n in SIGNS}
            mark = about["env"].get("LAUNCHED_FROM")
            about |= {"env": {n: about["env"].get(n) for n in TOLD}, "mark": mark}
            ranks.append(about)
        ranks.sort(key=lambda about: about["env"]["RANK"] or "")
        found |= {"late": late, "there": self.there, "ranks": ranks}
        return found | {"live": self.live, "said": self.said()}


SIGNS = "saved", "done"  # what a rank leaves behind when it has


def was_left(path: Path) -> bool:
    """End the rank that has signed in with `path`; return whether it still ran."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it still holds the lock
            os.kill(int(path.name.split()[1]), signal.SIGKILL)
            return True
    return False


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition holds, but no longer than so many seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def main() -> None:
    given = inputs()
    program = answer("launcher.py")
    print("", flush=True)  # a sign of life
    jobs = [Job(program, i, plan) for i, plan in enumerate(given["jobs"])]
    wait_for(lambda: all([job.ready() for job in jobs]), GIVE_UP)
    for job in jobs:
        job.go()
    print("", flush=True)
    grace = max(job.plan["grace"] for job in jobs)
    wait_for(lambda: all([job.ended() for job in jobs]), grace + GIVE_UP)
    give(jobs=[job.facts() for job in jobs])


if __name__ == "__main__":
    main()

"""Play jobs: a process calls launch() for each, and this one watches its ranks.

There is one rank of ours, which watches. The processes that launch are forked from it
before it knows the plan. What they start are toys: each calls here, tells its
environment, and is told what to do; the system says who has called, and who has ended.
"""

import ctypes
import json
import os
import re
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ranks
import torch.distributed.elastic.multiprocessing  # noqa: F401  (of which `record` is)
from ranks import RUN_FOLDER, answer, inputs, say
from wire import peer

JOBS = 4  # processes that can launch; more than any case needs
GIVE_UP = 12.0  # seconds until a launcher is given up
LOOK = 0.01  # seconds between two looks
LIBRARY = """
    torch.distributed.launcher torch.distributed.run torch.distributed.launch
    torch.distributed.elastic.agent torch.distributed.elastic.multiprocessing.api
    torch.multiprocessing.spawn
"""
KEPT = 300  # characters of what a launcher or a rank says
PR_SET_DUMPABLE = 4  # see prctl(2)
TOLD = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
TOY = """
import json, os, signal, socket, sys, time

rank, plan = os.environ.get("RANK", ""), None
judge = socket.socket(socket.AF_UNIX)

def say(**facts):
    judge.sendall(json.dumps(facts).encode() + b"\\n")

def told(number, frame):
    say(told=number)
    if plan is None:
        os._exit(98)
    if plan["told"] == "deaf":
        return
    time.sleep(plan["saves"])
    say(saved=True)
    os._exit(plan["leaves"])

judge.connect(sys.argv[1])
signal.signal(signal.SIGTERM, told), signal.signal(signal.SIGINT, told)
say(pid=os.getpid(), env=dict(os.environ), words=sys.argv[2:])
judge.settimeout(60)  # by then nobody looks after us any more
lines = judge.makefile("rb")
plan = json.loads(lines.readline())
if plan["binds"] and rank == "0":
    try:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        server = socket.create_server(address)
    except Exception as error:
        say(bound=f"{type(error).__name__}: {error}")
for i in range(plan["lines"]):
    os.write(1, f"rank {rank} says {i} on out\\n".encode())
os.write(2, f"rank {rank} says 0 on err\\n".encode())
say(here=True)
lines.readline()  # go
if plan["do"] == "work":
    time.sleep(60)
    os._exit(97)
time.sleep(plan["after"])
if plan["do"] == "die":
    os.kill(os.getpid(), plan["code"])
say(done=True)
os._exit(plan["code"])
"""


def words_of(folder: Path) -> list[str]:
    """Return the command that starts a toy of the job with this folder."""
    return [sys.executable, "-IS", "-c", TOY, str(folder / "toys")]


class Toy:
    """One rank that has called."""

    def __init__(self, connection: socket.socket):
        connection.setblocking(False)
        self.connection, self.rest, self.ended = connection, b"", False
        self.facts: dict[str, Any] = {"told": [], "env": {}}
        self.pid = peer(connection)
        self.command = command_of(self.pid)
        self.library = started_by_torch(self.pid)

    def hear(self) -> None:
        """Take in what it has said."""
        while not self.ended:
            try:
                data = self.connection.recv(65_536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.ended = not data
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                said = json.loads(line)
                self.facts["told"] += [said.pop("told")] if "told" in said else []
                self.facts |= said

    def tell(self, words: object) -> None:
        """Say something to it, if it is still there."""
        try:
            self.connection.send(json.dumps(words).encode() + b"\n")
        except OSError:
            self.ended = True

    def end(self) -> bool:
        """End it; return whether it still ran."""
        if not self.ended and (pid := self.pid or self.facts.get("pid")):
            os.kill(pid, signal.SIGKILL)
        return not self.ended


def command_of(pid: int) -> list[str] | None:
    """Return what a process runs of a toy's command; None where nobody tells."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return [word.decode(errors="replace") for word in words[1:5]] or None


def started_by_torch(pid: int) -> bool:
    """Tell whether between a process and us is a program, not our own, with torch."""
    with suppress(OSError):
        ours = Path("/proc/self/cmdline").read_bytes()
        while pid > 1 and pid != os.getpid():
            home = Path(f"/proc/{pid}")
            other = (home / "cmdline").read_bytes() != ours
            if other and "/libtorch" in (home / "maps").read_text(errors="replace"):
                return True
            stat = (home / "stat").read_text(errors="replace")
            pid = int(stat.rpartition(")")[2].split()[1])
    return False


class Job:
    """One call of launch(), in a process of its own, which waits for its order."""

    def __init__(self, number: int):
        self.number, self.there = number, 0
        self.live: dict[str, int] = {}
        self.folder = RUN_FOLDER / f"job_{number}"
        self.folder.mkdir()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "toys"))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.toys: list[Toy] = []
        ours, its = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            ranks._heard.close()
            ranks._judge.close()  # what is said to the judge is not for the answer
            self.listener.close()
            ours.close()
            self._launch(its)
        its.close()
        self.line = ours

    def _launch(self, line: socket.socket) -> None:
        """Be the launcher."""
        report: dict[str, Any] = {"code": None, "error": None}
        order = line.makefile("rb").readline()
        if not order:
            os._exit(0)
        given = json.loads(order)
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            output = os.open(self.folder / "output", how, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            variables = os.environ  # whose name in an assignment makes a cold start
            for name in TOLD:  # what torchrun has told us is no news for the ranks
                variables.pop(name, None)
            variables["LAUNCHED_FROM"] = given["mark"]
            program = answer("launcher.py", library=LIBRARY)
            command = [*words_of(self.folder), *given["words"]]
            report["code"] = program.launch(command, given["count"], given["grace"])
            sys.stdout.flush()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            for entry in reversed(traceback.extract_tb(error.__traceback__)):
                if entry.filename.endswith("launcher.py"):
                    text += f" (launcher.py:{entry.lineno})"
                    break
            report["error"] = text[:KEPT]
        line.sendall(json.dumps(report, default=repr).encode() + b"\n")
        os._exit(0)

    def begin(self, plan: dict) -> None:
        """Let launch() begin with its ranks."""
        self.plan = plan
        order = {"count": len(plan["acts"])} | {n: plan[n] for n in ORDER}
        self.line.sendall(json.dumps(order).encode() + b"\n")

    def hear(self) -> None:
        """Answer toys that call, and take in what all have said."""
        while True:
            try:
                toy = Toy(self.listener.accept()[0])
            except BlockingIOError:
                break
            self.toys.append(toy)
        for toy in self.toys:
            toy.hear()
            if "words" in toy.facts and "act" not in toy.facts:
                rank, acts = toy.facts["env"].get("RANK"), self.plan["acts"]
                known = rank in map(str, range(len(acts)))
                toy.facts["act"] = acts[int(rank) if known else 0]
                more = {name: self.plan[name] for name in ("lines", "binds")}
                toy.tell(toy.facts["act"] | more)

    def said(self) -> dict[str, int]:
        """Return how many lines of each rank and stream have come through."""
        path = self.folder / "output"
        text = path.read_text(errors="replace") if path.exists() else ""
        found = set(re.findall(r"rank (\d+) says (\d+) on (out|err)", text))
        # In order: a program that goes through a set otherwise starts cold, in seconds.
        return Counter(f"{rank} {stream}" for rank, _, stream in sorted(found))

    def ended(self) -> bool:
        """Tell whether the launcher has ended."""
        self.hear()
        if self.pid:
            pid, _ = os.waitpid(self.pid, os.WNOHANG)
            self.pid = 0 if pid else self.pid
        return not self.pid

    def ready(self) -> bool:
        """Tell whether all ranks are there, and heard if they have much to say."""
        count = len(self.plan["acts"])
        if self.ended() or self.here() < count:
            return self.ended()
        wanted = count * (self.plan["lines"] + 1)
        return not self.plan["lines"] or sum(self.said().values()) >= wanted

    def here(self) -> int:
        """Return how many ranks wait for their part."""
        return sum("here" in toy.facts for toy in self.toys)

    def go(self) -> None:
        """Let the ranks do their part, and the launcher be asked if that is planned."""
        self.there, self.live = self.here(), self.said()
        for toy in self.toys:
            toy.tell("go")
        if self.plan["signal"] and not self.ended():
            os.kill(self.pid, getattr(signal, self.plan["signal"]))

    def tell(self) -> None:
        """End what is left; tell the judge what has happened."""
        late = not self.ended()
        self.close()
        time.sleep(0.2)  # a rank that is just being started calls
        self.hear()
        report: dict[str, Any] = {"code": None}
        report["error"] = None if late else "its process was killed"
        self.line.settimeout(1)
        if line := self.line.makefile("rb").readline(KEPT * 10):
            report = json.loads(line)
        report["code"] = report["code"] if type(report["code"]) is int else None
        facts = {"late": late, "there": self.there, "job": self.number}
        say("job", **report, **facts, live=self.live, said=self.said())
        for toy in sorted(self.toys, key=lambda toy: toy.facts["env"].get("RANK", "")):
            env = toy.facts["env"]
            about = {name: toy.facts.get(name) for name in ("bound", "saved", "done")}
            about["told"] = sorted(toy.facts["told"])[:10]
            about |= {"left": toy.end(), "toy": self.is_toy(toy)}
            about["library"] = toy.library
            about["env"] = {name: env.get(name, "")[:KEPT] or None for name in TOLD}
            about["mark"] = env.get("LAUNCHED_FROM", "")[:KEPT]
            about["words"] = json.dumps(toy.facts.get("words"))[:KEPT]
            say("rank", job=self.number, **about)

    def is_toy(self, toy: Toy) -> bool:
        """Tell whether who has called is a process of its own that runs the command."""
        if not toy.pid:
            return True  # here the system does not tell
        once = [other.pid for other in self.toys].count(toy.pid) == 1
        return once and toy.command in (None, words_of(self.folder)[1:])

    def close(self) -> None:
        """End the launcher, if it still runs."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


ORDER = "mark", "words", "grace"  # what launch() is told, or finds


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until it holds, for so many seconds, or longer where the machine is busy."""
    for _ in range(round(seconds / LOOK)):
        if condition():
            return
        time.sleep(LOOK)


def main() -> None:
    ranks._all_are_here()
    jobs = [Job(number) for number in range(JOBS)]
    if sys.platform == "linux":  # our memory and our line to the judge are our own
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    plans = inputs()["jobs"]
    print("", flush=True)  # a sign of life
    for job in jobs[len(plans) :]:
        job.close()
    jobs = jobs[: len(plans)]
    for job, plan in zip(jobs, plans, strict=True):
        job.begin(plan)
    wait_for(lambda: all([job.ready() for job in jobs]), GIVE_UP)
    for job in jobs:
        job.go()
    print("", flush=True)
    grace = max(job.plan["grace"] for job in jobs)
    wait_for(lambda: all([job.ended() for job in jobs]), grace + GIVE_UP)
    for job in jobs:
        job.tell()
    say("told")


if __name__ == "__main__":
    main()

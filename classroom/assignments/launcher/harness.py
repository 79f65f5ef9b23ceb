"""Play jobs: a process calls launch() for each, and this one watches its ranks.

There is one rank of ours, which watches. What launch() starts are toys: each calls
here, tells its environment, and is told what to do.
"""

import functools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import ranks
import torch.distributed.elastic.multiprocessing  # noqa: F401  (of which `record` is)
from ranks import RUN_FOLDER, answer, inputs, say

GIVE_UP = 12.0  # seconds until a launcher is given up
LONGEST_GRACE = 6.0  # seconds of grace, at most, in which it may be waiting for a rank
LOOK = 0.01  # seconds between two looks
LIBRARY = """
    torch.distributed.launcher torch.distributed.run torch.distributed.launch
    torch.distributed.elastic.agent torch.distributed.elastic.multiprocessing.api
    torch.multiprocessing.spawn
"""
STARTS = "subprocess.Popen", "os.posix_spawn", "os.fork"  # of a process; see sys.audit
KEPT = 300  # characters of what a launcher or a rank says
TOLD = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
UNKNOWN: dict[str, Any] = {"code": None, "error": None, "stays": []}  # of launch()
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
    for _ in range(600):
        time.sleep(0.1)  # a signal just before it is heard only after it
    os._exit(97)
time.sleep(plan["after"])
if plan["do"] == "die":
    os.kill(os.getpid(), plan["code"])
say(done=True)
os._exit(plan["code"])
"""


class Toy:
    """One rank that has called."""

    def __init__(self, connection: socket.socket):
        connection.setblocking(False)
        self.connection, self.rest = connection, b""
        self.told, self.ended = 0.0, 0.0  # when; 0 if not
        self.facts: dict[str, Any] = {"told": [], "env": {}}

    def hear(self) -> None:
        """Take in what it has said."""
        while not self.ended:
            try:
                data = self.connection.recv(65_536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.ended = time.monotonic()
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "told" in said:
                    self.told = self.told or time.monotonic()
                    self.facts["told"].append(said.pop("told"))
                self.facts |= said

    def tell(self, words: object) -> None:
        """Say something to it, if it is still there."""
        with suppress(OSError):
            self.connection.send(json.dumps(words).encode() + b"\n")

    def left(self) -> str:
        """Return in which way it is still there; "" if it is not."""
        if not self.ended:
            return "still runs"
        with suppress(ProcessLookupError, KeyError):
            os.kill(self.facts["pid"], 0)  # asks whether it is there
            return "is a zombie"
        return ""


class Job:
    """A process that calls launch() when it is told to, and its ranks."""

    def __init__(self, number: int, plan: dict):
        self.number, self.plan = number, plan
        self.folder = RUN_FOLDER / f"job_{number}"
        self.folder.mkdir()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "toys"))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.line, its = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            ranks._heard.close()
            ranks._judge.close()  # what is said to the judge is not for the answer
            self.listener.close()
            self.line.close()
            self._launch(its)
        its.close()
        self.line.setblocking(False)

    def _launch(self, line: socket.socket) -> None:
        """Be the launcher, until nobody is at the other end of the line."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream, name in ((1, "out"), (2, "err")):
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(self.folder / name, how, 0o600), stream)
        variables = os.environ  # whose name in an assignment makes a cold start
        for name in TOLD:  # what torchrun has told us is no news for the ranks
            variables.pop(name, None)
        variables["LAUNCHED_FROM"] = self.plan["mark"]
        # It would wait for a rank that launch() has not waited for, if in luck.
        subprocess.Popen.__del__ = lambda popen: None  # type: ignore[method-assign]
        command = [sys.executable, "-IS", "-c", TOY, str(self.folder / "toys")]
        command += self.plan["words"]
        program = functools.cache(lambda: answer("launcher.py", library=LIBRARY))
        for _ in line.makefile("rb"):
            # Who draws a port without asking the system draws the same one again.
            random.seed(self.number)
            np.random.seed(self.number)
            report = {**UNKNOWN}
            try:
                if self.plan["signals"] == 0:
                    self._strike()
                count, grace = len(self.plan["acts"]), self.plan["grace"]
                code = program().launch(command, count, grace)
                report["code"] = code if type(code) is int else str(code)[:40]
                sys.stdout.flush()
            except BaseException as error:
                text = f"raises {type(error).__name__}: {error}".removesuffix(": ")
                for entry in reversed(traceback.extract_tb(error.__traceback__)):
                    if entry.filename.endswith("launcher.py"):
                        text += f" (launcher.py:{entry.lineno})"
                        break
                report["error"] = text[:KEPT]
            report["stays"] = [name for name in TOLD if name in variables]
            line.sendall(json.dumps(report).encode() + b"\n")
        os._exit(0)

    def _strike(self) -> None:
        """Have the planned signal come while ranks are started: before the last one.

        That moment is one of the program's own, and no matter of time. A launcher may
        have started other processes than ranks until then, but not as many.
        """
        left, pid = len(self.plan["acts"]), os.getpid()

        def hear(event: str, args: tuple) -> None:
            nonlocal left
            left -= event in STARTS
            if event in STARTS and left == 0:
                os.kill(pid, getattr(signal, self.plan["signal"]))

        sys.addaudithook(hear)

    def begin(self) -> None:
        """Have launch() called."""
        self.toys: list[Toy] = []
        self.report: dict[str, Any] | None = None
        self.live, self.there, self.heard = Counter[str](), 0, b""
        self.line.send(b"\n")

    def hear(self) -> None:
        """Answer toys that call, and take in what all have said."""
        with suppress(BlockingIOError):
            while True:
                self.toys.append(Toy(self.listener.accept()[0]))
        for toy in self.toys:
            toy.hear()
            if "words" in toy.facts and "act" not in toy.facts:
                rank, acts = toy.facts["env"].get("RANK"), self.plan["acts"]
                known = rank in map(str, range(len(acts)))
                toy.facts["act"] = acts[int(rank) if known else 0]
                more = {name: self.plan[name] for name in ("lines", "binds")}
                toy.tell(toy.facts["act"] | more)

    def printed(self, name: str) -> str:
        """Return what the launcher and its ranks have printed to a stream."""
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def said(self) -> Counter[str]:
        """Return how many lines of each rank have come through on which stream."""
        found: Counter[str] = Counter()
        for name in ("out", "err"):
            said = re.findall(rf"rank (\d+) says \d+ on {name}", self.printed(name))
            found.update(f"{rank} {name}" for rank in said)
        return found

    def ended(self) -> bool:
        """Tell whether launch() has ended."""
        self.hear()
        if not self.report:
            with suppress(BlockingIOError, ConnectionError):
                self.heard += self.line.recv(65_536)
            if self.heard.endswith(b"\n"):
                self.report = json.loads(self.heard)
                return True
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid, ended = 0, os.waitstatus_to_exitcode(status)
                how = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
                self.report = UNKNOWN | {"error": f"has ended its process: {how}"}
        return bool(self.report)

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
        for place in range(self.plan["signals"] if self.plan["signal"] else 0):
            if place:  # again, while the ranks end
                wait_for(self.ending, GIVE_UP)
            if not self.ended():
                os.kill(self.pid, getattr(signal, self.plan["signal"]))

    def ending(self) -> bool:
        """Tell whether a rank has been asked to end."""
        return self.ended() or any(toy.told for toy in self.toys)

    def alone(self) -> bool:
        """Tell whether no rank is left."""
        self.hear()
        return not any(toy.left() for toy in self.toys)

    def tell(self) -> None:
        """Tell the judge what has happened; end what is left."""
        self.late = not self.ended()
        time.sleep(0.2)  # a rank that is just being started calls
        wait_for(self.alone, 0 if self.late else 1)  # one may be about to end
        errors = re.sub(r"rank \d+ says .*\n", "", self.printed("err"))[:KEPT]
        facts = UNKNOWN | (self.report or {}) | {"late": self.late, "there": self.there}
        facts |= {"job": self.number, "live": self.live, "said": self.said()}
        say("job", **facts, errors=errors)
        first = min((toy.told for toy in self.toys if toy.told), default=0.0)
        for toy in sorted(self.toys, key=lambda toy: toy.facts["env"].get("RANK", "")):
            env = toy.facts["env"]
            about = {name: toy.facts.get(name) for name in ("bound", "saved", "done")}
            about["told"] = sorted(toy.facts["told"])[:10]
            about |= {"left": toy.left(), "lasted": toy.ended - first}
            about["env"] = {name: env.get(name, "")[:KEPT] or None for name in TOLD}
            about["mark"] = env.get("LAUNCHED_FROM", "")[:KEPT]
            about["words"] = json.dumps(toy.facts.get("words"))[:KEPT]
            say("rank", job=self.number, **about)
        if self.late:
            os.kill(self.pid, signal.SIGKILL)
        for toy in self.toys:
            if toy.left() == "still runs":
                os.kill(toy.facts["pid"], signal.SIGKILL)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until it holds, for so many seconds, or longer where the machine is busy."""
    for look in range(round(seconds / LOOK)):
        if condition():
            return
        if look % 100 == 0:
            print("", flush=True)  # a sign of life
        time.sleep(LOOK)


def main() -> None:
    ranks._all_are_here()
    given, taken = inputs(), []
    jobs = [Job(number, plan) for number, plan in enumerate(given["jobs"])]
    for _ in range(given["times"]):
        for job in jobs:
            job.begin()
        wait_for(lambda: all([job.ready() for job in jobs]), GIVE_UP)
        for job in jobs:
            job.go()
        grace = min(LONGEST_GRACE, max(job.plan["grace"] for job in jobs))
        wait_for(lambda: all([job.ended() for job in jobs]), grace + GIVE_UP)
        for job in jobs:
            job.tell()
        if any(job.late or not job.pid for job in jobs):
            break
        for job in jobs:  # from here on somebody else has the port
            with suppress(OSError, OverflowError, ValueError, LookupError):  # no port
                port = int(job.toys[0].facts["env"]["MASTER_PORT"])
                taken.append(socket.create_server(("127.0.0.1", port)))
    say("told")
    for job in jobs:
        job.line.close()


if __name__ == "__main__":
    main()

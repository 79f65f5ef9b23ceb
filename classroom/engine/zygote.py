"""The warm process of a grading run: holds torch, and forks whatever a case needs.

    python zygote.py

It runs outside of every sandbox, and nothing of a student's. A message at its stdin, a
socket, brings the sandbox of one run: a file that stands for its first process. For
each a keeper is forked, which enters it, but for its processes: what the keeper forks
is born among those, and can neither see nor name the keeper.

    judge        sandbox.py
     |  message                               outside
    zygote                                    ...
     |  forks for each run                    ...
    keeper       holds the judge's socket     ...
     |  forks                                 inside
     +-- launcher                             ...
     +-- torchrun and the ranks               ...

The keeper is the run's fork server as well, so that it sees by wait() how every rank
ends. When the launcher has said what became of the run, as in a lesson, it kills all
that is inside, and collects the files.
So the launcher, which may be deceived, only words a failure.
"""

import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from classroom.engine import fence, runner
from whichrank import fork_server, program, write_python

SCRATCH = "/run"  # inside the sandbox, where the run's folder and logs are
FOLDER, SERVER = Path(SCRATCH, "case"), Path(SCRATCH, "server")
ALL_NAMESPACES = 0x7E020000  # see setns(2)


def main(control: socket.socket) -> None:
    """Fork a keeper for each message, until nobody can send any more."""
    fork_server.load()
    control.send(b"ready")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while True:
        word, files, _, _ = socket.recv_fds(control, 1, 8)
        if not word:
            return
        if os.fork() == 0:
            control.close()
            _alone(keep, *files)
        for file in files:
            os.close(file)


def _alone(work: Callable[..., None], *args: Any) -> None:
    """Do the work of a fork, which never comes back from it."""
    try:
        work(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def keep(channel_file: int, inside: int, *groups: int) -> None:
    """Be the keeper of one run.

    Args:
        channel_file: a socket to the judge.
        inside: a pidfd of the sandbox's first process.
        groups: where to sign in to the submission's control groups.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = socket.socket(fileno=channel_file)
    for group in groups:
        os.write(group, b"0")  # whoever writes it
        os.close(group)
    if fence.libc.setns(inside, ALL_NAMESPACES):
        raise OSError("the sandbox cannot be entered")
    os.chdir("/tmp")
    fence.set_dumpable(False)  # nor may what we fork be looked into
    fence.fence()
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tempfile.tempdir = SCRATCH  # a program that fills /tmp can still say so
    with channel.makefile("wb") as judge:
        runner.write(judge, {"keeper": os.getpid()}, {})
        try:
            header = _take(channel)
            answer, found = _run(header, [channel.fileno(), inside], inside)
        except Exception as error:  # say, a full disk
            answer, found = {"trouble": f"{type(error).__name__}: {error}"[:500]}, {}
        runner.write(judge, answer, found)


def _take(channel: socket.socket) -> dict:
    """Put the judge's files in place; return what is asked for.

    The ranks are copies of this process: no frame of it shall hold what others get.
    """
    with channel.makefile("rb") as judge:
        header, files = runner.read(judge)
    runner.fill(FOLDER, header, files)
    return header


def _run(header: dict, files: list[int], inside: int) -> runner.Answer:
    """Run what the judge asks for; return how it went, and its files."""
    SERVER.mkdir()
    said, say = os.pipe()
    server = Server(header["ranks"], [*files, said])
    if os.fork() == 0:
        server.let_go()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _alone(launch, header, say)
    os.close(say)
    os.dup2(said, 0)
    server.serve()  # until the launcher says something, or ends
    with open(said, closefd=False) as answer:
        words = answer.read()
    try:
        wire = bytes_on_wire()
    except OSError:  # the sandbox has ended
        words = ""
    with suppress(ProcessLookupError):  # somebody has killed it already
        signal.pidfd_send_signal(inside, signal.SIGKILL)  # and with it all inside
    with suppress(ChildProcessError):
        while True:
            os.wait()
    select.select([inside], [], [])  # nobody is left who could still write
    if not words:
        return {"trouble": "one of its processes has killed the others"}, {}
    told = json.loads(words)
    if "trouble" not in told:
        told = judged(told, server.codes) | {"bytes_on_wire": wire}
    return told, runner.collect(FOLDER / "out", told)


def launch(header: dict, pipe: int) -> None:
    """Be the launcher: run the harness, and say what became of it."""
    try:
        limits = runner.graded(header["output"])
        answer = runner.launch(header, FOLDER, limits, starter=_Given())
    except Exception as error:  # say, a full disk
        answer = {"trouble": f"{type(error).__name__}: {error}"[:500]}
    with open(pipe, "w") as stream:
        json.dump(answer, stream)


class _Given:
    """The fork server of this run, which the launcher has not started."""

    def python(self, env: dict[str, str], tell: object = None) -> str:
        return write_python(SERVER, str(SERVER / "socket"))

    def fine(self, *about: str) -> str:
        return ""  # it is there, and nothing else can start a rank here

    unfit = new_trouble = ended_by = fine


def judged(answer: dict, codes: dict[int, int]) -> dict:
    """Return the launcher's answer, with the exit codes as wait() has told them."""
    said = answer["exit_codes"]
    found = [None if c is None else codes.get(r) for r, c in enumerate(said)]
    bad = [r for r, code in sorted(codes.items()) if code]
    if bad and not answer["failure"]:
        answer["failure"] = f"rank {bad[0]} ended with {codes[bad[0]]}"
    return answer | {"exit_codes": found}


def bytes_on_wire() -> int | None:
    """Return how many bytes have gone over the loopback of this run."""
    for line in Path("/proc/1/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])  # transmitted
    return None


# --- the fork server ---


class Server(fork_server.Server):
    """Forks torchrun, then its ranks, and nothing more: by then no rank has begun.

    Args:
        ranks: how many there will be.
        files: of ours, which no fork shall have.
    """

    def __init__(self, ranks: int, files: list[int]):
        super().__init__(SERVER / "socket", program.run, self._leave)
        self.left, self.files = 1 + ranks, files
        self.codes: dict[int, int] = {}
        """By rank its exit code, negative for a signal."""
        self._ranks: dict[int, int] = {}  # by pid

    def let_go(self) -> None:
        """Close in a fork what is for us alone."""
        for file in (self.listener, self.wake, self.woken):
            file.close()
        for number in self.files:
            os.close(number)

    def accept(self) -> None:
        """Fork a program, as long as there are some to be forked."""
        if self.left:
            super().accept()
        else:
            self.listener.accept()[0].close()

    def note_start(self, request: fork_server.Request, pid: int) -> None:
        """Keep which rank this is; torchrun, which comes first, is none."""
        self.left -= 1
        for told in request.variables:
            if told.startswith("RANK="):
                self._ranks[pid] = int(told[5:])

    def note_end(self, pid: int, status: int) -> None:
        """Keep how a rank has ended."""
        if pid in self._ranks:
            self.codes[self._ranks[pid]] = os.waitstatus_to_exitcode(status)

    def _leave(self, client: int) -> None:
        """Be a fork, from now on without a way to us; let it die first of all."""
        for number in self.files:
            os.close(number)
        fence.set_dumpable(True)  # py-spy, which the launcher asks, may look


if __name__ == "__main__":
    main(socket.socket(fileno=os.dup(0)))

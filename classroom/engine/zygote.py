"""The warm process of a grading run: holds torch, and forks whatever a case needs.

    python zygote.py FD

It runs outside of every sandbox, and nothing of a student's. A message at the socket FD
brings the sandbox that the judge has made for one run, as a file that stands for its
first process. For each a keeper is forked, which enters it, but for its processes: what
the keeper forks is born among those, and can neither see nor name the keeper.

    judge        sandbox.py
     |  message                                outside
    zygote
     |  forks for each run
    keeper       holds the judge's socket; collects the files when all have ended
     |  forks
     +-- fork server    sees how every rank ends
     |    |
     |    |  forks -------------------------------------- inside
     |    torchrun, ranks
     |
     launcher    tells what became of the run, as in a lesson ---- inside

So what counts comes from the keeper: which files there are, and how the ranks ended, by
wait(). From the launcher, which may be deceived, comes how a failure is worded.
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

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from classroom.engine import fence, runner
from ddp_lab.kit.run import fork_server, job, rank, warm
from ddp_lab.kit.run.limits import Limits

SCRATCH = "/run"  # inside the sandbox, where the run's folder and logs are
FOLDER, SERVER = Path(SCRATCH, "case"), Path(SCRATCH, "server")
ALL_NAMESPACES = 0x7E020000  # see setns(2)
MOST_FILES = 1024  # that a keeper may have open
PROCESSES = 2000  # and threads, of this user; the judge is stricter
# The first sign of life may be late, because a machine that grades is busy.
FIRST_SIGN = 120.0  # seconds


def main(control: socket.socket) -> None:
    """Fork a keeper for each message, until nobody can send any more."""
    fork_server.load()
    control.send(b"ready")
    while True:
        word, files, _, _ = socket.recv_fds(control, 1, 8)
        if not word:
            return
        _bury()
        parent = os.getpid()
        if os.fork() == 0:
            control.close()
            _alone(keep, parent, *files)
        for file in files:
            os.close(file)


def _bury() -> None:
    """Let the keepers go that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _alone(work: Callable[..., None], *args: int) -> None:
    """Do the work of a fork, which never comes back from it."""
    try:
        work(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def keep(zygote: int, channel_file: int, inside: int, *groups: int) -> None:
    """Be the keeper of one run.

    Args:
        zygote: its process, with which we end.
        channel_file: a socket to the judge.
        inside: a pidfd of the sandbox's first process.
        groups: where to sign in to the submission's control groups.
    """
    channel = socket.socket(fileno=channel_file)
    for group in groups:
        os.write(group, b"0")  # whoever writes it
        os.close(group)
    if fence.libc.setns(inside, ALL_NAMESPACES):
        raise OSError("the sandbox cannot be entered")
    os.chdir("/tmp")
    fence.set_dumpable(False)  # nor may what we fork be looked into
    fence.fence()
    fork_server.die_with(zygote)
    os.nice(5)
    with channel.makefile("rb") as requests, channel.makefile("wb") as answers:
        runner.write(answers, {"keeper": os.getpid()}, {})
        header, files = runner.read(requests)
        try:
            answer, found = _run(channel, inside, header, files)
        except Exception as error:  # say, a full disk
            answer, found = {"trouble": f"{type(error).__name__}: {error}"[:500]}, {}
        runner.write(answers, answer, found)


def _run(
    channel: socket.socket, inside: int, header: dict, files: dict[str, bytes]
) -> tuple[dict, dict[str, bytes]]:
    """Run what `header` asks for; return how it went, and its files."""
    limits = limit(*header["limits"])
    runner.fill(FOLDER, header, files)
    SERVER.mkdir()
    alive, its_end = os.pipe()  # the fork server's stdin
    ends, say_end = os.pipe()
    said, say = os.pipe()
    _fork(lambda: serve(header["ranks"], say_end), stdin=alive, keep=say_end)
    os.read(ends, 1)  # it listens
    nothing = os.open(os.devnull, os.O_RDONLY)
    _fork(lambda: launch(header, limits, say), stdin=nothing, keep=say)
    for file in (alive, say_end, say, nothing):
        os.close(file)
    words = _hear(said, channel)
    wire = bytes_on_wire()
    with suppress(ProcessLookupError):  # somebody has killed it already
        signal.pidfd_send_signal(inside, signal.SIGKILL)  # and with it all inside
    os.close(its_end)
    codes = {r: code for r, code in map(json.loads, _hear(ends).splitlines())}
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    if not words:
        raise RuntimeError("the launcher has been killed")
    answer = json.loads(words)
    if "trouble" not in answer:
        answer = judged(answer, codes) | {"bytes_on_wire": wire}
    return answer, runner.collect(FOLDER / "out")


def _fork(work: Callable[[], None], stdin: int, keep: int) -> None:
    """Do `work` in a fork that has of our files `stdin` and `keep`, and no other."""
    if os.fork() == 0:
        os.dup2(stdin, 0)
        os.closerange(3, keep)
        os.closerange(keep + 1, MOST_FILES)
        _alone(work)


def launch(header: dict, limits: Limits, pipe: int) -> None:
    """Be the launcher: run the harness, and say what became of it."""
    job.WARM = _Given()
    try:
        answer = runner.launch(header, FOLDER, limits)
    except Exception as error:  # say, a full disk
        answer = {"trouble": f"{type(error).__name__}: {error}"[:500]}
    with open(pipe, "w") as stream:
        json.dump(answer, stream)


class _Given(warm.Warm):
    """The fork server of this run, which the launcher has not started."""

    def python(self, env: dict[str, str]) -> str:
        return warm.write_python(SERVER, str(SERVER / "socket"))

    def lost(self, python: str) -> str:
        return ""


def _hear(pipe: int, judge: socket.socket | None = None) -> bytes:
    """Return what comes through a pipe until it closes, or until the judge is gone."""
    heard = b""
    watched = [pipe] if judge is None else [pipe, judge.fileno()]
    while True:
        ready, _, _ = select.select(watched, [], [])
        new = os.read(pipe, 1 << 16) if pipe in ready else b""
        if not new:
            return heard
        heard += new


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


def limit(memory: int, file: int, output: int) -> Limits:
    """Set what this process and each that it starts may have; return a run's limits."""
    for kind, most in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, file),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    tempfile.tempdir = SCRATCH  # a program that fills /tmp can still say so
    return Limits(first_sign=FIRST_SIGN, output=output, kept_runs=0)


# --- the fork server ---


def serve(ranks: int, pipe: int) -> None:
    """Be the fork server; say [rank, exit code] of every rank that has ended."""
    server = Server(ranks, pipe)
    os.write(pipe, b"\n")
    server.serve()


class Server(fork_server.Server):
    """Forks torchrun, then its ranks, and nothing more: by then no rank has begun."""

    def __init__(self, ranks: int, pipe: int):
        super().__init__(SERVER / "socket", rank.run, self.wall_in)
        self.left, self.pipe = 1 + ranks, pipe
        self.ranks: dict[int, int] = {}  # by pid

    def accept(self) -> None:
        """Fork a program, as long as there are some to be forked."""
        if self.left:
            super().accept()
        else:
            self.listener.accept()[0].close()

    def note_start(self, request: fork_server.Request, pid: int) -> None:
        """Keep which rank this is; torchrun, which comes first, is none."""
        self.left -= 1
        told = [v[5:] for v in request.variables if v.startswith("RANK=")]
        if told:
            self.ranks[pid] = int(told[0])

    def note_end(self, pid: int, status: int) -> None:
        """Say how a rank has ended."""
        if pid in self.ranks:
            end = [self.ranks[pid], os.waitstatus_to_exitcode(status)]
            os.write(self.pipe, json.dumps(end).encode() + b"\n")

    def wall_in(self, client: int) -> None:
        """Be a fork, from now on without a way to us."""
        try:
            os.close(self.pipe)
            fence.wall_in()
        except BaseException:  # no program without a wall
            traceback.print_exc()
            os._exit(1)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

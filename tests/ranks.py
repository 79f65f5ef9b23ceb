"""Start a program's ranks without a launcher: for tests of what the program does.

A launch by `torchrun` (ddp_lab/kit/launch.py) has a guard, an agent, a rendezvous
and a proxy for each rank. Here a rank is a fork of the warm process that holds torch,
with the variables that torchrun would set, and nothing else: a fourth of the work. The
ranks meet at a store that another fork hosts, as torchrun's agent does. What they leave
is read and judged as after any launch.
"""

import json
import os
import selectors
import shlex
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ddp_lab.kit import torchrun
from ddp_lab.kit.launch import WARM
from whichrank import Run, RunFailed
from whichrank.explain.causes.ended import Stopped
from whichrank.explain.failure import Failure
from whichrank.explain.find import find_failure
from whichrank.record.logs import TorchrunLog
from whichrank.run import probe
from whichrank.run.cold import why_cold
from whichrank.run.here import environment
from whichrank.run.limits import Limits
from whichrank.run.signs import Signs
from whichrank.run.watchdog import Watchdog

IN_TURN = Path(__file__).with_name("in_turn.py")
TICK = 0.5  # seconds between two looks at the output
GRACE = 1.0  # seconds that the other ranks have to end, once one has failed
STORES = """
import collections, sys
from torch.distributed import TCPStore
kept = collections.deque(maxlen=16)
for line in sys.stdin:
    kept.append(TCPStore("localhost", 0, is_master=True, wait_for_workers=False))
    print(kept[-1].port, flush=True)
"""
"""For each line that it reads, makes a store and says at which port."""


class Fork:
    """A fork of the warm process, which runs `python -u ARGV`.

    Args:
        argv: what comes after `python -u`.
        env: its environment.
        streams: its stdin, stdout and stderr.
        server: the socket of the warm process.
    """

    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        *streams: IO | socket.socket,
        server: Path,
    ):
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(str(server))
        variables = [f"{name}={value}" for name, value in env.items()]
        parts = [os.getcwd(), str(len(argv)), *argv, *variables]
        data = b"\0".join(map(os.fsencode, parts))
        numbers = [stream.fileno() for stream in streams]
        socket.send_fds(self.line, [len(data).to_bytes(8, "big")], numbers)
        self.line.sendall(data)
        self.reply = self.line.makefile("r")
        self.pid = int(self.reply.readline())

    def end(self) -> int:
        """Return how it has ended; wait for that, if need be."""
        status = self.reply.readline()
        return os.waitstatus_to_exitcode(int(status or 9))

    def let_go(self) -> None:
        """Have it killed, with all that it has started, if it still runs."""
        self.reply.close()
        self.line.close()


SOCKETS: list[Path] = []  # of warm processes; the last one serves


def warm_process() -> Path:
    """Return the socket of the warm process, which is started if there is none.

    It is asked for once: to look whether any of thousands of files has changed takes
    longer than a fork.
    """
    if not SOCKETS or not SOCKETS[-1].exists():
        warm = WARM.python(environment())
        if warm is None:
            raise RunFailed("there is no warm process", None)
        SOCKETS.append(Path(warm).with_name("socket"))
    return SOCKETS[-1]


@dataclass
class Stores:
    """A fork that hosts the stores at which ranks meet."""

    fork: Fork | None = None
    line: IO | None = None

    def new(self) -> int:
        """Return the port of a new store."""
        for _ in range(2):
            if self.fork:
                try:
                    print(file=self.line, flush=True)
                    if port := self.line.readline():
                        return int(port)
                except OSError:
                    pass  # the warm process has been replaced
                self.fork.let_go()
            ours, its = socket.socketpair()
            with ours, its, open(os.devnull, "w") as nowhere:
                self.line = ours.makefile("rw")
                argv, server = ["-c", STORES], warm_process()
                self.fork = Fork(argv, environment(), its, its, nowhere, server=server)
        raise RunFailed("no store for the ranks", None)


STORE = Stores()


def launch(
    ranks: int,
    program: Path,
    arguments: str = "",
    timeout: float = 60,
    expect_failure: bool = False,
) -> Run:
    """Return what became of `ranks` ranks of a program, as `torchrun` does.

    Args:
        ranks: their number.
        program: their file.
        arguments: of the program.
        timeout: seconds without a sign of life, after which they are killed.
        expect_failure: return a run that fails, and raise if it succeeds.
    """
    words = [str(program), *shlex.split(arguments)]
    if why_cold(program):  # of these no fork is made
        return torchrun(
            ["--nproc-per-node", str(ranks), *words],
            timeout=timeout,
            expect_failure=expect_failure,
        )
    folder = Path(tempfile.mkdtemp(prefix="ddp_lab-ranks-"))
    try:
        run = _launch(ranks, words, folder, timeout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if run.failure and not expect_failure:
        raise RunFailed(run.failure.report(), run)
    if expect_failure and not run.failure:
        raise RunFailed("expected the run to fail, but it succeeded", run)
    return run


def take_turns(
    ranks: int, programs: list[Path], timeout: float = 30
) -> tuple[dict[Path, str], str]:
    """Return how each of some programs ends, and all that they print.

    The same ranks run one after the other; after one that ends a rank, or makes it wait
    for ever, other ranks go on. It ends with "" if all ranks succeed, else with what a
    failed run calls the kind of its failure.
    """
    kind, words = "", " ".join(map(str, programs))
    try:
        run = launch(ranks, IN_TURN, words, timeout=timeout)
    except RunFailed as error:
        run, kind = error.run, error.run.failure.kind
    ended: dict[Path, str] = {}
    printed = "\n".join(line for lines in run.lines for line in lines)
    for turn, path in enumerate(programs, 1):
        told = [facts.get(str(path)) for facts in run.facts]
        if None in told:
            assert kind, f"{path} was never tried"
            rest, more = {}, ""
            if programs[turn:]:
                rest, more = take_turns(ranks, programs[turn:], timeout)
            return ended | {path: kind} | rest, f"{printed}\n{more}"
        ended[path] = "" if all(told) else "exception"
    return ended, printed


def tell_apart(
    ranks: int, wrong: list[Path], right: list[Path], timeout: float = 30
) -> tuple[dict[Path, str], str]:
    """Let the same ranks run wrong programs and then right ones: see `take_turns`.

    If a right one fails, a wrong one may have damaged the ranks: each runs alone then.
    """
    ended, printed = take_turns(ranks, [*wrong, *right], timeout)
    if any(ended[path] for path in right):
        for path in [*wrong, *right]:
            alone, more = take_turns(ranks, [path], timeout)
            ended, printed = ended | alone, f"{printed}\n{more}"
    return ended, printed


def _launch(ranks: int, words: list[str], folder: Path, timeout: float) -> Run:
    start, shared = time.monotonic(), environment()
    shared |= {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "ROLE_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(STORE.new()),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": folder.name,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    living: dict[int, Fork] = {}
    server = warm_process()
    try:
        for rank in range(ranks):
            home = folder / "run" / "attempt_0" / str(rank)
            home.mkdir(parents=True)
            own = {name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
            own["TORCHELASTIC_ERROR_FILE"] = str(home / "error.json")
            with (
                open(os.devnull) as nothing,
                open(home / "stdout.log", "wb") as out,
                open(home / "stderr.log", "wb") as err,
            ):
                living[rank] = Fork(
                    words, shared | own, nothing, out, err, server=server
                )
        stopped = _wait(living, folder, timeout)
    finally:
        for fork in living.values():
            fork.let_go()
    log = TorchrunLog.read(folder)
    code = int(bool(stopped) or any(rank.code for rank in log.ranks))
    failure: Failure | None = None
    if stopped:
        failure = Failure("timeout", Stopped(by="timeout", limit=timeout))
    else:
        failure, _ = find_failure(log, code, None, 0)
    return Run(
        command=shlex.join(["torchrun", "--nproc-per-node", str(ranks), *words]),
        lines=[rank.lines for rank in log.ranks],
        facts=[rank.facts for rank in log.ranks],
        warnings=[rank.warnings for rank in log.ranks],
        exit_codes=[rank.code for rank in log.ranks],
        seconds=time.monotonic() - start,
        failure=failure,
        code=code,
    )


def _wait(living: dict[int, Fork], folder: Path, timeout: float) -> bool:
    """Wait until all ranks have ended; return whether they stand still instead.

    What counts as a sign of life is what counts for the launcher.
    """
    signs, failed = Signs(folder), 0.0
    watchdog = Watchdog(Limits(silence=timeout, first_sign=0), time.monotonic())
    with selectors.DefaultSelector() as selector:
        for rank, fork in living.items():
            selector.register(fork.line, selectors.EVENT_READ, rank)
        while living:
            for key, _ in selector.select(TICK):
                fork = living.pop(key.data)
                selector.unregister(fork.line)
                code, now = fork.end(), time.time()
                fork.let_go()
                end = {"code": code, "time": now, "asked": False}
                home = folder / "run" / "attempt_0" / str(key.data)
                (home / "exit.json").write_text(json.dumps(end))
                if code and not failed:
                    failed = time.monotonic()
            if failed and time.monotonic() - failed > GRACE:
                return False
            watchdog.hear(now := time.monotonic(), signs.count())
            if watchdog.due(now):
                seen = probe.see_ranks(folder)
                watchdog.hear(now := time.monotonic(), signs.count())
                if watchdog.see(now, seen):
                    return True
    return False

"""How long it takes to start ranks that make one all_reduce, and to see them end.

The floor starts them with nothing around: see programs/floor.py.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Result, interleaved
from ddp_lab.kit import torchrun

PROGRAMS = Path(__file__).with_name("programs")
PROGRAM, FLOOR = PROGRAMS / "one_all_reduce.py", PROGRAMS / "floor.py"
ENV = os.environ | {"OMP_NUM_THREADS": "1"}  # torchrun gives its ranks one thread, too


def measure(rounds: int) -> Iterator[Result]:
    """Yield a result for 2, 4 and 8 ranks, and one for two nodes."""
    yield compare(2, rounds, warm=1)  # torch's files are then in memory, for all
    for ranks in (4, 8):
        yield compare(ranks, rounds, warm=0)
    yield two_nodes(rounds)


def two_nodes(rounds: int) -> Result:
    """Return the result for two nodes of two ranks each."""
    argv = ["--nnodes", "2", "--nproc-per-node", "2", str(PROGRAM)]
    timings = interleaved(
        {
            "two torchruns in shells": lambda: _two_in_shells(argv),
            "%torchrun --nnodes 2": lambda: torchrun(argv).seconds,
        },
        rounds,
        warm=0,
    )
    return Result("launch", "2 nodes of 2 ranks, one all_reduce", timings)


def compare(ranks: int, rounds: int, warm: int) -> Result:
    """Return the result for so many ranks."""
    argv = ["--standalone", "--nproc-per-node", str(ranks), str(PROGRAM)]
    shell = [sys.executable, "-m", "torch.distributed.run", *argv]
    with floor(ranks) as forked:
        timings = interleaved(
            {
                "torchrun in a shell": lambda: _in_a_shell(shell),
                "%torchrun": lambda: torchrun(argv).seconds,
                "fork (the floor)": forked,
            },
            rounds,
            warm,
        )
    return Result("launch", f"{ranks} ranks, one all_reduce", timings)


@contextmanager
def floor(ranks: int) -> Iterator[Callable[[], float]]:
    """Yield a function that starts the ranks once and returns the seconds."""
    command = [sys.executable, str(FLOOR), str(ranks), str(PROGRAM)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=ENV) as process:
        ask, answer = process.stdin, process.stdout
        assert ask and answer

        def once() -> float:
            ask.write(b"\n")
            ask.flush()
            return float(answer.readline())

        yield once


def _two_in_shells(argv: list[str]) -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
    place = ["--master-addr", "127.0.0.1", "--master-port", port]
    launcher = [sys.executable, "-m", "torch.distributed.run", *place, "--node-rank"]
    agents = [
        subprocess.Popen([*launcher, node, *argv], env=ENV, stderr=subprocess.DEVNULL)
        for node in "01"
    ]
    codes = [agent.wait() for agent in agents]
    if any(codes):
        raise subprocess.CalledProcessError(max(codes), launcher)


def _in_a_shell(command: list[str]) -> None:
    subprocess.run(command, env=ENV, capture_output=True, check=True)

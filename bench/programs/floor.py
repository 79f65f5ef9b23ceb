"""Start ranks as fast as it can be done: the floor under every other way.

    python floor.py RANKS PROGRAM

There is no torchrun, no log, no watcher. A process that has imported torch forks the
ranks whenever a line comes in, waits for their ends, and prints the seconds it took.
"""

import gc
import os
import socket
import sys
import time
from types import CodeType
from typing import NoReturn

import torch.distributed  # noqa: F401  (for the forks)


def become(rank: int, port: int, program: CodeType) -> NoReturn:
    """Be one rank, in a fork that ends without the interpreter's own end."""
    os.environ |= {"RANK": str(rank), "MASTER_PORT": str(port)}
    exec(program, {"__name__": "__main__"})
    os._exit(0)


def turn(ranks: int, program: CodeType) -> float:
    """Run the program once on `ranks` ranks; return the seconds."""
    start = time.perf_counter()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    children = []
    for rank in range(ranks):
        children.append(os.fork())
        if children[-1] == 0:
            become(rank, port, program)
    ends = [os.waitpid(child, 0)[1] for child in children]
    if any(ends):
        raise AssertionError(f"the ranks ended with {ends}")
    return time.perf_counter() - start


def main(ranks: int, path: str) -> None:
    """Take a turn for each line that comes in."""
    with open(path) as file:
        program = compile(file.read(), path, "exec")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(ranks)}
    gc.collect()
    gc.freeze()  # or each rank's gc.collect() would go through all that was imported
    for _ in sys.stdin:
        print(turn(ranks, program), flush=True)
    os._exit(0)  # a plain end would look for leaks among what is frozen


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""How long it takes to start ranks that make one all_reduce, and to see them end."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import Result, interleaved
from ddp_lab.kit import torchrun

PROGRAM = """\
import gc
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
dist.destroy_process_group()
gc.collect()
"""
# The floor: a process that holds torch forks the ranks, and there is no torchrun.
FLOOR = """\
import os, sys, time
import torch, torch._dynamo
import torch.distributed as dist
ranks, program = int(sys.argv[1]), open(sys.argv[2]).read()
os.environ |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(ranks)}
for turn in range(int(sys.argv[3])):
    start = time.perf_counter()
    os.environ["MASTER_PORT"] = str(29600 + turn)
    children = []
    for rank in range(ranks):
        children.append(os.fork())
        if children[-1] == 0:
            os.environ["RANK"] = str(rank)
            exec(program)
            os._exit(0)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    print(time.perf_counter() - start, flush=True)
"""


def measure(rounds: int) -> Iterator[Result]:
    """Yield a result for 2, 4 and 8 ranks."""
    with tempfile.TemporaryDirectory() as folder:
        program, floor = Path(folder, "program.py"), Path(folder, "floor.py")
        program.write_text(PROGRAM)
        floor.write_text(FLOOR)
        for ranks in (2, 4, 8):
            yield _with(ranks, program, floor, rounds)


def _with(ranks: int, program: Path, floor: Path, rounds: int) -> Result:
    argv = ["--standalone", "--nproc-per-node", str(ranks), str(program)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    shell = [sys.executable, "-m", "torch.distributed.run", *argv]
    words = [sys.executable, str(floor), str(ranks), str(program), str(rounds + 1)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) as forks:
        forked = [float(line) for line in forks.stdout]
    timings = interleaved(
        {
            "torchrun in a shell": lambda: _in_a_shell(shell, env),
            "%torchrun --cold": lambda: torchrun(argv, cold=True).seconds,
            "%torchrun": lambda: torchrun(argv).seconds,
            "fork (the floor)": lambda: forked.pop(0),
        },
        rounds,
    )
    return Result("launch", f"{ranks} ranks, one all_reduce", timings)


def _in_a_shell(command: list[str], env: dict[str, str]) -> None:
    subprocess.run(command, env=env, capture_output=True, check=True)

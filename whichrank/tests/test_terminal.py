"""The command `whichrank`, on programs as they are found elsewhere.

Their authors know nothing of it, and start them in their own ways. `whichrank why`
is asked about each while it runs; then it must run on as if nobody had looked.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from support import FULL, HOUSE, living, wait_until

pytestmark = pytest.mark.processes

PYTHON = sys.executable
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
WHICHRANK = [PYTHON, "-m", "whichrank"]
HEAD = """
import os, sys, time
import torch
import torch.distributed as dist

print("begun", flush=True)

def stuck():
    while not os.path.exists("release"):
        time.sleep(0.05)
"""
END = """
if __name__ == "__main__":
    main()
    if dist.is_initialized():
        dist.destroy_process_group()
"""


@dataclass
class Program:
    """A program, how it is started, and what is right to say of it."""

    body: str
    says: str = ""
    """A regular expression for the first line of the explanation."""
    line: str = ""
    """What the line that is named holds."""
    ranks: int = 2
    start: str = "torchrun"
    others: dict[int, str] = field(default_factory=dict)
    """What is told of the ranks, each as a regular expression."""
    ends: bool = False
    """Whether it goes on, and ends well, once the file `release` is there."""
    marks: tuple = (FULL,)
    seconds: float = 3
    never: str = r"has not come|waits? in .* and"
    """What must not be said, of a program that is healthy."""


HANGS = {
    "a rank skips a step": Program(
        """
        def main():
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            for step in range(10):
                loss = torch.ones(4) * step
                if rank == 1 and step == 3:
                    print("a bad batch, skipped", flush=True)
                    stuck()  # the next batch never comes
                dist.all_reduce(loss)
            print("done", loss.sum().item(), flush=True)
        """,
        "rank 1: has not come, and rank 0 waits in all_reduce",
        "time.sleep(0.05)",
        others={0: r"waits in all_reduce at train.py:\d+ in main: dist.all_reduce"},
        ends=True,
        marks=(),
    ),
    "mp.spawn": Program(
        """
        import torch.multiprocessing as mp

        def worker(rank, world_size):
            os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "@PORT"
            dist.init_process_group("gloo", rank=rank, world_size=world_size)
            if rank == 2:
                while not os.path.exists("release"):
                    pass
            dist.barrier()
            print("done", flush=True)

        def main():
            mp.spawn(worker, args=(3,), nprocs=3)
        """,
        "rank 2: is busy at train.py:.*, and ranks 0 and 1 wait in barrier",
        "",
        ranks=3,
        start="python",
        others={0: "waits in barrier", 2: "is busy at .* of a core"},
        ends=True,
    ),
    "send meets send": Program(
        """
        def main():
            dist.init_process_group("gloo")
            rank, n = dist.get_rank(), dist.get_world_size()
            buf = torch.ones(1_000_000)
            dist.send(buf, dst=(rank + 1) % n)
            dist.recv(buf, src=(rank - 1) % n)
        """,
        "the run: rank 0 waits in send for rank 1, rank 1 waits in send for rank 0",
        "dist.send",
    ),
    "only rank 0 calls barrier": Program(
        """
        def main():
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            if rank == 0:
                torch.save({}, "ckpt.pt")
                dist.barrier()
            t = torch.ones(1)
            dist.all_reduce(t)
        """,
        "the run: .* different calls: rank 0 in barrier, ranks 1 and 2 in all_reduce",
        "dist.barrier()",
        ranks=3,
    ),
    "a DataLoader's worker hangs": Program(
        """
        from torch.utils.data import DataLoader, Dataset

        class Images(Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, i):
                if i == 9 and int(os.environ["RANK"]) == 1:
                    stuck()  # an NFS server that does not answer
                return torch.tensor([float(i)])

        def main():
            dist.init_process_group("gloo")
            for batch in DataLoader(Images(), batch_size=4, num_workers=2):
                dist.all_reduce(batch)
            print("done", flush=True)
        """,
        "rank 1: has not come, and rank 0 waits in all_reduce",
        "for batch in DataLoader",
        others={1: r"stands at .*\n    its DataLoader worker 0 stands at train.py:"},
        ends=True,
    ),
    "a rank has left": Program(
        """
        def main():
            rank = int(os.environ["RANK"])
            if rank == 1:
                os._exit(0)  # "no data for me"
            dist.init_process_group("gloo")
        """,
        "rank 1: is not there, and ranks 0 and 2 wait in init_process_group",
        "dist.init_process_group",
        ranks=3,
        others={1: "is not there: it has ended, or was never started"},
    ),
    "a frozen rank": Program(
        """
        import signal
        def main():
            dist.init_process_group("gloo")
            for step in range(5):
                if step == 3 and dist.get_rank() == 1:
                    os.kill(os.getpid(), signal.SIGSTOP)
                t = torch.ones(3)
                dist.all_reduce(t)
            print("done", flush=True)
        """,
        "rank 1: is stopped by a signal or a debugger, and rank 0 waits in all_reduce",
        "os.kill",
        others={1: "is stopped by a signal or a debugger at "},
    ),
    "SLURM": Program(
        """
        def main():
            rank, n = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
            at = "tcp://127.0.0.1:@PORT"
            dist.init_process_group("gloo", init_method=at, rank=rank, world_size=n)
            if rank == 1:
                stuck()
            dist.barrier()
            print("done", flush=True)
        """,
        "rank 1: has not come, and rank 0 waits in barrier",
        "time.sleep",
        start="slurm",
        ends=True,
    ),
    "RANK=0 python train.py &": Program(
        """
        def main():
            dist.init_process_group("gloo")
            if dist.get_rank() == 1:
                stuck()
            dist.barrier()
            print("done", flush=True)
        """,
        "rank 1: has not come, and ranks 0 and 2 wait in barrier",
        "time.sleep",
        ranks=3,
        start="by_hand",
        ends=True,
        marks=(),
    ),
    "rank 0 starts the others": Program(
        """
        import subprocess

        def main():  # as Lightning's own launcher does
            here = {"WORLD_SIZE": "3", "NODE_RANK": "0"}
            here |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "@PORT"}
            if "LOCAL_RANK" not in os.environ:
                os.environ.update(here | {"LOCAL_RANK": "0"})
                words = [sys.executable, os.path.abspath(sys.argv[0])]
                for local in ("1", "2"):
                    subprocess.Popen(words, env=os.environ | {"LOCAL_RANK": local})
            rank = int(os.environ["LOCAL_RANK"])
            dist.init_process_group("gloo", rank=rank, world_size=3)
            if rank == 2:
                stuck()
            dist.barrier()
            print("done", flush=True)
        """,
        "rank 2: has not come, and ranks 0 and 1 wait in barrier",
        "time.sleep",
        ranks=3,
        start="python",
        ends=True,
    ),
    "DDP, uneven batches": Program(
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main():
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            model = DDP(torch.nn.Linear(4, 1))
            for step in range(5 if rank else 6):
                model(torch.ones(2, 4)).sum().backward()
            if rank:
                stuck()  # writes its report
            dist.barrier()
        """,
        "rank 1: has not come, and rank 0 waits in backward",
        "time.sleep",
        others={0: r"waits in backward at .*backward\(\)"},
    ),
}
LOOP = """
        def main():
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            stop, step = torch.zeros(1), 0
            while not stop:
                {step}
                stop += os.path.exists("release")
                dist.all_reduce(stop)
                step += 1
            print("done", flush=True)
"""
HEALTHY = {
    "a training loop": Program(
        LOOP.format(step="torch.ones(64, 64) @ torch.ones(64, 64); time.sleep(0.02)"),
        "the run: all 2 ranks move",
        ends=True,
    ),
    "a long computation": Program(
        """
        def main():
            dist.init_process_group("gloo")
            x = torch.eye(1200)
            while not os.path.exists("release"): x = x @ x
            dist.barrier()
            print("done", flush=True)
        """,
        r"(ranks 0 and 1 are busy at train.py:\d+|all 2 ranks move|rank . (is b|m))",
        ends=True,
    ),
    "sleeping between steps": Program(
        LOOP.format(step="time.sleep(1)"), "the run: all 2 ranks move", ends=True
    ),
    "rank 0 evaluates": Program(
        LOOP.format(step="time.sleep(1) if rank == 0 else None; dist.barrier()"),
        "the run: all 3 ranks move",
        ranks=3,
        ends=True,
    ),
    "DDP with workers": Program(
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, Dataset

        class Images(Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, i):
                time.sleep(0.02)
                return torch.ones(4)

        def main():
            dist.init_process_group("gloo")
            model = DDP(torch.nn.Linear(4, 1))
            stop = torch.zeros(1)
            images = DataLoader(
                Images(), batch_size=4, num_workers=1, persistent_workers=True
            )
            while not stop:
                for x in images:
                    model(x).sum().backward()
                stop += os.path.exists("release")
                dist.all_reduce(stop)
            print("done", flush=True)
        """,
        "the run: all 2 ranks move",
        ends=True,
        seconds=8,
    ),
}


class Started:
    """A program that somebody else has started."""

    def __init__(self, program: Program, folder: Path, port: int):
        self.program, self.folder = program, folder
        body = textwrap.dedent(program.body).replace("@PORT", str(port))
        self.path = folder / "train.py"
        self.path.write_text(HEAD + body + END)
        self.log = open(folder / "log", "wb")  # noqa: SIM115
        self.port = str(port)
        getattr(self, "_" + program.start)()

    def start(self, words: list[str], **environment: object) -> None:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        env |= {name: str(value) for name, value in environment.items()}
        process = subprocess.Popen(
            words, env=env, cwd=self.folder, stdout=self.log, stderr=self.log
        )
        self.processes = [*getattr(self, "processes", []), process]

    def _torchrun(self) -> None:
        ranks = str(self.program.ranks)
        self.start([*TORCHRUN, "--standalone", "--nproc-per-node", ranks, "train.py"])

    def _python(self) -> None:
        self.start([PYTHON, "train.py"])

    def _by_hand(self) -> None:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}
        for rank in range(many := self.program.ranks):
            self.start([PYTHON, "train.py"], RANK=rank, WORLD_SIZE=many, **meeting)

    def _slurm(self) -> None:
        many = self.program.ranks
        job = {"SLURM_JOB_ID": 4711, "SLURM_STEP_ID": 0, "SLURM_NTASKS": many}
        for rank in range(many):
            step = {"SLURM_PROCID": rank, "SLURM_STEP_TASKS_PER_NODE": many}
            self.start(["sh", "-c", f"{PYTHON} train.py; exit $?"], **job, **step)

    def family(self) -> dict[int, float]:
        """Return all its processes, and since when each of them is there."""
        found = living(os.environ["DDP_LAB_TEST"])
        return {p.pid: p.create_time() for p in found if p.pid != os.getpid()}

    def said(self, word: str) -> int:
        return (self.folder / "log").read_text().count(word)


@pytest.fixture
def started(tmp_path, survivors, free_port):
    """Return a function that starts a program; it is ended with the test."""
    running = []

    def start(program: Program) -> Started:
        running.append(Started(program, tmp_path, free_port))
        return running[-1]

    yield start
    for one in running:
        one.log.close()
    for process in living(os.environ["DDP_LAB_TEST"]):
        if process.pid != os.getpid():
            process.kill()
    for one in running:
        for child in one.processes:
            child.wait()


def why(*words: object, cwd: Path = HOUSE, code: int = 0) -> str:
    """Return what `whichrank why` says."""
    done = subprocess.run(
        [*WHICHRANK, "why", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def settle(job: Started) -> None:
    """Wait until a program has got as far as it gets at once."""
    assert wait_until(lambda: job.said("begun") >= job.program.ranks, 90)

    def used() -> float:
        family = living(os.environ["DDP_LAB_TEST"])
        return sum(sum(p.cpu_times()[:2]) for p in family if p.pid != os.getpid())

    deadline, before = time.monotonic() + 10, -1.0
    while (now := used()) > before + 0.05 and time.monotonic() < deadline:
        before = now
        time.sleep(1)


def cases(programs: dict[str, Program]):
    for name, program in programs.items():
        yield pytest.param(program, id=name, marks=program.marks)


@pytest.mark.parametrize("program", [*cases(HANGS), *cases(HEALTHY)])
def test_why(program, started):
    job = started(program)
    settle(job)
    before, files = job.family(), sorted(p.name for p in job.folder.iterdir())
    pid = job.processes[0].pid
    said = why("--seconds", program.seconds, pid, cwd=job.folder)
    print(said)
    first = said.split("\n\n", 1)[1].splitlines()[0]
    assert re.search(program.says, first), said
    if program in HEALTHY.values():
        assert not re.search(program.never, first), said
        assert "nothing has moved" not in said
    if program.line:
        line = re.search(r"^  at train.py:(\d+)", said, re.M)
        assert program.line in job.path.read_text().splitlines()[int(line[1]) - 1]
    for rank, text in program.others.items():
        assert re.search(rf"^  rank {rank}: {text}", said, re.M), said
    # Nobody has come, gone, or left anything.
    assert job.family() == before
    assert sorted(p.name for p in job.folder.iterdir()) == files
    if program.ends:
        (job.folder / "release").touch()
        assert [process.wait(60) for process in job.processes] == [0] * len(
            job.processes
        )
        assert job.said("done") == program.ranks


@FULL
def test_a_frozen_rank_stays_frozen(started):
    job = started(HANGS["a frozen rank"])

    def is_frozen(process: psutil.Process) -> bool:
        try:
            return process.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:  # it has ended meanwhile
            return False

    def frozen() -> list[psutil.Process]:
        return list(filter(is_frozen, living(os.environ["DDP_LAB_TEST"])))

    assert wait_until(frozen, 90)
    why("--seconds", 2, frozen()[0].pid)
    time.sleep(0.5)
    frozen()[0].send_signal(signal.SIGCONT)
    assert job.processes[0].wait(60) == 0
    assert job.said("done") == 2

"""Real kernels: stopped, restarted, killed and flooded in the middle of a run."""

import itertools
import os
import re
import resource
import shutil
import signal
import time
from contextlib import suppress

import forked
import psutil
import pytest
from conftest import Cell
from jupyter_client import KernelManager
from support import FULL, WARM, living, wait_until

from ddp_lab import ROOT
from whichrank.run.here import environment

pytestmark = pytest.mark.processes

MARK = f"kernel-{os.getpid()}"  # each worker of pytest-xdist has a kernel of its own
LIMIT = 500_000 + os.getpid() % 300_000  # another mark, which forks inherit as well
# The lab, whose warm process and cold torchruns are forks of our warm process.
LOAD = f"""
import resource
import forked
forked.servers()
forked.torchruns()
resource.setrlimit(resource.RLIMIT_MSGQUEUE, ({LIMIT}, {LIMIT}))
%load_ext ddp_lab
"""
MOST_SHOWN = 300_000  # bytes of messages that one cell may send
STOPPED_WITHIN = 15  # seconds after which a stopped cell has surely come back

RANK = """
import os, signal, sys, time
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""
GOOD = RANK + 'print(f"[rank {rank}] all is well", flush=True)\n'
SLEEPS = """
def wait_for_ever():
    print(f"[rank {rank}] now I wait", flush=True)
    time.sleep(600)  # where all ranks stand
wait_for_ever()
"""
IGNORES = RANK + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
SENDS = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
right, send_buf = (rank + 1) % world_size, torch.ones(1_000_000)
print(f"[rank {rank}] now I wait", flush=True)
dist.send(send_buf, dst=right)  # where all ranks stand
"""
RAISES = f"""{RANK}
def work():
    raise ValueError("wrong neighbor")
if rank == 1:
    work()
time.sleep(600)
"""
HANGING = {"sleeps": RANK + SLEEPS, "ignores SIGTERM": IGNORES, "sends": SENDS}


class Lab:
    """A kernel in which the lab is loaded, as the first cell of a notebook does."""

    def __init__(self, env: dict[str, str]):
        self.manager, self.client, self.env = None, None, env

    def start(self) -> None:
        """Start a kernel."""
        self.manager = KernelManager(shutdown_wait_time=60)  # on a busy machine
        config = [f"--config={ROOT}/ddp_lab/kit/cell/ipython_config.py"]
        folder = ROOT / "notebooks"
        self.manager.start_kernel(env=self.env, cwd=folder, extra_arguments=config)
        self.connect()

    def connect(self, load: bool = True) -> None:
        """Wait for a kernel that has been started, and load the lab."""
        if self.client:
            self.client.stop_channels()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        if load:
            assert not self.cell(LOAD).end().error

    def cell(self, code: str) -> Cell:
        return Cell(self.client, code)

    def launch(self, path, ranks: int = 2, options: str = "") -> Cell:
        """Launch a program that hangs, and wait until every rank has said so."""
        said = [f"[rank {rank}] now I wait" for rank in range(ranks)]
        command = f"%torchrun {options} --nproc-per-node {ranks} {path}"
        return self.cell(command).wait_for(*said)

    def stop(self, cell: Cell, times: int = 1) -> Cell:
        """Press the stop button, perhaps impatiently, and wait for the cell's end."""
        self.manager.interrupt_kernel()
        for _ in range(times - 1):
            time.sleep(0.3)  # an impatient person
            self.manager.interrupt_kernel()
        return cell.end(STOPPED_WITHIN)

    def answers(self) -> bool:
        """Return whether the kernel can still do sums."""
        return "42" in self.cell("6 * 7").end(STOPPED_WITHIN).text

    def works(self, path) -> bool:
        """Return whether the run of a good program shows its lines."""
        shown = self.cell(f"%torchrun --nproc-per-node 2 {path}").end().text
        return all(f"[rank {rank}] all is well" in shown for rank in range(2))

    def close(self) -> None:
        """End the kernel, whatever it is doing."""
        if self.client:
            self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)


def ours() -> list[psutil.Process]:
    """Return the living processes of this file's kernel, forks of others included."""
    found = set(living(MARK))
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            limit, _ = resource.prlimit(process.pid, resource.RLIMIT_MSGQUEUE)
            if limit == LIMIT and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return [*found]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return a function that writes a program; what the lab keeps of it is removed."""
    folder = tmp_path_factory.mktemp("programs")
    number = itertools.count()

    def write(body: str):
        path = folder / f"{MARK}_{next(number)}.py"
        path.write_text(body)
        return path

    yield write
    for kept in (ROOT / "build" / "logs").glob(f"{MARK}_*"):
        shutil.rmtree(kept, ignore_errors=True)  # a later run may remove it, too


@pytest.fixture(scope="module")
def running(tmp_path_factory, programs):
    """The one kernel of this file, and how many processes it consists of at rest."""
    home = tmp_path_factory.mktemp("home")  # no settings of whoever runs the tests
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
    env = os.environ | dict.fromkeys(names, str(home))
    env[forked.HOLDS_TORCH] = WARM.python(environment()) or pytest.skip("all is cold")
    lab = Lab(env | {"DDP_LAB_TEST": MARK})
    try:
        lab.start()
        assert lab.works(programs(GOOD))
        assert wait_until(lambda: len(ours()) == 3), ours()
        yield lab, 3  # the kernel, its fork server, and the proxy of that
    finally:
        lab.close()


@pytest.fixture
def lab(running, programs):
    """The kernel, or a new one if the test before has left it dead or deaf."""
    lab, _ = running
    try:
        assert lab.manager.is_alive() and lab.answers()
    except AssertionError:
        lab.close()
        lab.start()
    return lab


@pytest.fixture
def rests(running):
    """Return a function: has the run left nothing but the kernel's own processes?"""
    return lambda: wait_until(lambda: len(ours()) == running[1])


def stands(cell: Cell, path, rank: int) -> bool:
    """Return whether the cell says at which line of `path` the rank stood."""
    lines = path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if "where all ranks stand" in line)
    source = re.escape(lines[number].split("  #")[0].strip())
    where = rf"(?m)^ *rank {rank}\b.*{path.name}:{number + 1}\b.*{source}"
    return re.search(where, cell.text) is not None


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])
@pytest.mark.parametrize("name", HANGING)
def test_a_stopped_run_says_where_every_rank_stood(lab, programs, rests, name, ranks):
    path = programs(HANGING[name])
    cell = lab.launch(path, ranks)
    assert len(ours()) >= 2 + ranks
    lab.stop(cell)
    assert cell.error
    told = [rank for rank in range(ranks) if stands(cell, path, rank)]
    assert told == list(range(ranks)), cell.text
    assert lab.answers()
    assert rests(), ours()


def test_a_stopped_run_raises_keyboard_interrupt(lab, programs):
    cell = lab.stop(lab.launch(programs(HANGING["sleeps"])))
    assert cell.error
    assert "launch.py" not in cell.text  # the launcher's own frames teach nothing
    asked = lab.cell("import sys; issubclass(sys.last_type, KeyboardInterrupt)").end()
    assert "True" in asked.text


def test_a_second_press_of_stop_changes_nothing(lab, programs, rests):
    path, kernel = programs(IGNORES), lab.manager.provisioner.pid
    cell = lab.stop(lab.launch(path, 4), times=2)
    assert cell.error
    assert lab.answers()
    assert lab.manager.provisioner.pid == kernel
    assert rests(), ours()


def restart(lab):
    lab.manager.restart_kernel(now=False)
    lab.connect()


def restart_now(lab):
    lab.manager.restart_kernel(now=True)
    lab.connect()


def kill(lab):
    os.kill(lab.manager.provisioner.pid, signal.SIGKILL)
    assert wait_until(lambda: not lab.manager.is_alive())


def shut_down(lab):
    lab.manager.shutdown_kernel()


STUBBORN = ("--cold", 2, "ignores SIGTERM")  # the guard has to end it
SENDING = ("", 4, "sends")  # the fork server's death would do


@pytest.mark.parametrize(
    "end, what",
    [
        (restart, SENDING),
        pytest.param(restart_now, STUBBORN, marks=FULL),
        pytest.param(kill, SENDING, marks=FULL),
        (kill, STUBBORN),
        pytest.param(shut_down, STUBBORN, marks=FULL),
    ],
)
def test_no_run_outlives_its_kernel(lab, programs, rests, end, what):
    options, ranks, name = what
    lab.launch(programs(HANGING[name]), ranks, options)
    started = ours()
    assert len(started) >= 3 + ranks  # the kernel, the guard, torchrun, the ranks
    end(lab)
    assert wait_until(lambda: not set(started) & set(ours())), ours()
    if not lab.manager.is_alive():
        assert ours() == []
        lab.start()
    assert lab.works(programs(GOOD))
    assert rests(), ours()


def test_a_kernel_without_the_lab_says_what_to_do(lab):
    lab.manager.restart_kernel(now=True)
    lab.connect(load=False)
    codes = ["run = %torchrun x.py", "%python x.py"]
    for code in codes:
        shown = lab.cell(code).end().text
        assert "has not run `%load_ext ddp_lab`: run the cells above" in shown
        heavy = "import sys; {'torch', 'ddp_lab.kit.cell.magics'} & {*sys.modules}"
        assert lab.cell(heavy).end().text == "set()\n"  # nor does it slow down others
    assert not lab.cell(LOAD).end().error
    for code in codes:
        assert "there is no file x.py" in lab.cell(code).end().text


def test_a_name_without_a_value_leads_to_the_cells_above(lab):
    command = "%torchrun --nproc-per-node {ranks} x.py '{}' '{\"a\": 1}'"
    shown = lab.cell(command).end().text
    assert "{ranks} has no value in this kernel: run the cells above" in shown
    shown = lab.cell(f"ranks = 2\n{command}").end().text
    assert "there is no file x.py" in shown


LATE = """
import os, runpy, time
while not os.path.exists({go!r}):
    time.sleep(0.05)
runpy.run_path({server!r}, run_name="__main__")
"""


@pytest.fixture
def held(lab, tmp_path):
    """Return a file; until it is there, the kernel's fork server imports nothing."""
    go, late = tmp_path / "go", tmp_path / "late.py"
    late.write_text(LATE.format(go=str(go), server=forked.__file__))
    setup = f"""
from pathlib import Path
from ddp_lab.kit.launch import WARM
from whichrank.run import warm
WARM.stop()
real, warm.FORK_SERVER = warm.FORK_SERVER, Path({str(late)!r})
"""
    assert not lab.cell(setup).end().error
    yield go
    go.touch()
    if lab.manager.is_alive():
        lab.cell("warm.FORK_SERVER = real").end()


def test_a_launch_is_seen_before_torch_is_imported(lab, programs, held, rests):
    cell = lab.cell(f"%torchrun --nproc-per-node 2 {programs(GOOD)}")
    cell.wait_for("$ torchrun", "running for 1 s: importing torch, once")
    first = next(m["content"]["data"] for m in cell.messages if "data" in m["content"])
    held.touch()
    cell.end()
    assert "[rank 1] all is well" in cell.text
    # What is stored does not depend on how long that took.
    assert "running for" not in cell.text
    assert "running for" not in first["text/plain"]  # nbval knows no later ones
    assert rests(), ours()


def test_a_launch_that_waits_for_torch_can_be_stopped(lab, programs, held, rests):
    path = programs(GOOD)
    cell = lab.cell(f"%torchrun --nproc-per-node 2 {path}").wait_for("importing torch")
    lab.stop(cell)
    assert cell.error
    assert "running for" not in cell.text
    assert wait_until(lambda: len(ours()) == 2), ours()  # it still waits
    held.touch()
    assert lab.works(path)
    assert rests(), ours()


def test_a_run_stopped_before_it_has_begun_harms_no_later_one(
    lab, programs, held, rests
):
    code = f"print('off')\n%torchrun --nproc-per-node 2 {programs(HANGING['sleeps'])}"
    cell = lab.stop(lab.cell(code).wait_for("off"))
    assert cell.error
    held.touch()
    assert lab.works(programs(GOOD))
    assert rests(), ours()
    assert "launch.py" not in cell.text


def test_a_kernel_that_ends_does_not_wait_for_its_imports(lab, programs, held):
    cell = lab.cell(f"%torchrun --nproc-per-node 2 {programs(GOOD)}")
    cell.wait_for("importing torch")
    started = ours()
    assert len(started) == 2  # the kernel and its fork server
    restart(lab)
    assert wait_until(lambda: not set(started) & set(ours())), ours()


def test_a_failed_run_begins_with_its_cause_and_is_short(lab, programs, rests):
    path = programs(RAISES)
    cell = lab.cell(f"%torchrun --nproc-per-node 2 {path}").end()
    traceback = "\n".join(cell.error["traceback"])
    assert cell.error["ename"] == "RunFailed"
    assert traceback.startswith("RunFailed: rank 1: ValueError: wrong neighbor\n")
    assert f"{path.name}:6 in work" in traceback.splitlines()[1]
    assert len(traceback.splitlines()) <= 25
    assert "ddp_lab/kit" not in traceback and "torch/distributed" not in traceback
    assert "$ torchrun" not in traceback  # which stands above it
    assert "hint()" not in traceback  # of no exercise
    assert rests(), ours()


# Each pauses for a second, so that the live display has to cope as well.
FLOODS = {
    "200 MB in lines": """
lines = b"0123456789 one line of many\\n" * 100_000
for part in range(72):
    sys.stdout.buffer.write(lines)
    if part == 36:
        sys.stdout.flush()
        time.sleep(1)
""",
    "one line of 50 MB": """
for part in range(2):
    print("x" * 25_000_000, end="", flush=True)
    time.sleep(1)
""",
    "a warning of 50 MB": """
for part in range(2):
    print("x" * 25_000_000, end="", file=sys.stderr, flush=True)
    time.sleep(1)
""",
    "a fact of 50 MB": 'print(json.dumps({"x": "x" * 50_000_000}), flush=True)',
    "a million short lines": """
sys.stdout.write("ha\\n" * 1_000_000)
time.sleep(1)
""",
    "no UTF-8": """
every_byte = bytes(range(256))
for part in range(2):
    for file in (sys.stdout.buffer, sys.stderr.buffer):
        file.write(every_byte + b"\\n\\xff\\xfe\\xc3\\x28\\n")
        file.flush()
    time.sleep(1)
""",
}
LAST = '\nprint(f"\\n[rank {rank}] the last line", flush=True)\n'


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "one line of 50 MB" else FULL) for n in FLOODS],
)
def test_a_flood_of_output_does_not_drown_the_notebook(lab, programs, rests, name):
    path = programs("import json" + RANK + FLOODS[name] + LAST)
    cell = lab.cell(f"%torchrun --nproc-per-node 1 {path}").end(60)
    assert not cell.error
    assert "[rank 0] the last line" in cell.text
    assert cell.size < MOST_SHOWN
    assert lab.answers()
    assert rests(), ours()


def test_hints_and_an_answer_are_there_without_an_import(lab, monkeypatch):
    lab.cell('path = "ddp_lab/p2p/exercise.py"').end()  # as in a cell that launches it
    for number in (1, 2):
        shown = lab.cell("hint()").end().text
        assert shown.startswith(f"p2p/exercise, hint {number} of 3:")

    cell = lab.cell("solution()")
    asked = lab.client.get_stdin_msg(timeout=STOPPED_WITHIN)["content"]["prompt"]
    assert "ddp_lab/p2p/exercise.py: show it?" in asked
    lab.client.input("y")
    assert "+    total = send_buf.clone()" in cell.end().text

    monkeypatch.setattr(lab.client, "allow_stdin", False)  # as papermill and nbval do
    cell = lab.cell("solution()").end()
    assert not cell.error and "nothing here can reply" in cell.text


@FULL
def test_a_flood_in_an_exception_does_not_drown_it_either(lab, programs):
    path = programs('print("begun", flush=True)\nraise ValueError("x" * 50_000_000)\n')
    cell = lab.cell(f"%torchrun --nproc-per-node 1 {path}").end(60)
    assert "ValueError: xxx" in cell.text
    assert "raise ValueError(" in cell.text
    assert cell.size < MOST_SHOWN
    assert lab.answers()

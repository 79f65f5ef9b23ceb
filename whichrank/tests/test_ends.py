"""How ranks end, as their proxies and they themselves leave it: only live ones show."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from forked import let_torchrun_be_a_fork
from launched import torchrun
from support import FULL
from test_facts import NO_FACTS

from whichrank import RunFailed
from whichrank.run import live

pytestmark = pytest.mark.processes
WAYS = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


@pytest.fixture(autouse=True)
def forks(monkeypatch):
    """Let torchrun be a fork where the ranks' cold starts are what is looked at."""
    let_torchrun_be_a_fork(monkeypatch)


ENDS = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
open(f"{os.path.dirname(__file__)}/{rank}", "w").close()
while len(os.listdir(os.path.dirname(__file__))) < 9: time.sleep(0.01)
if rank == 1: sys.exit(3)
if rank == 2: os._exit(5)
if rank == 3: os.kill(os.getpid(), signal.SIGSEGV)
if rank == 4: raise ValueError("no such sample")
if rank == 5: os._exit(0)
if rank == 6: time.sleep(600)
if rank == 7:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    time.sleep(600)
"""


@pytest.fixture
def left(monkeypatch, tmp_path):
    """Return the folder in which a run's logs are kept, as they were at its end."""
    read = live.LiveRun._read

    def keep(self, final):
        if final:
            pipes = shutil.ignore_patterns("ask")
            shutil.copytree(self.folder, tmp_path / "left", ignore=pipes)
        return read(self, final)

    monkeypatch.setattr(live.LiveRun, "_read", keep)
    return tmp_path / "left"


@WAYS
def test_every_rank_leaves_how_it_ended(left, tmp_path, cold):
    program = tmp_path / "together" / "ends.py"
    program.parent.mkdir()
    program.write_text(ENDS)
    command = f"--nproc-per-node 8 {program}"
    run = torchrun(command, cold=cold, expect_failure=True)
    ends = {}
    for path in left.glob("*/attempt_0/*/exit.json"):
        ends[int(path.parent.name)] = json.loads(path.read_text())
    codes = [ends[rank]["code"] for rank in range(8)]
    assert codes[:6] == [0, 3, 5, -11, 1, 0]
    assert [codes[6], codes[7]] == [-15, 4]
    assert all(ends[rank]["asked"] for rank in (6, 7))
    first = min(ends, key=lambda rank: ends[rank]["time"])
    assert not ends[first]["asked"]
    assert all(ends[6]["time"] > ends[rank]["time"] for rank in range(6))
    assert run.exit_codes == codes
    (raised,) = left.glob("*/attempt_0/*/raised.json")
    found = json.loads(raised.read_text())
    assert raised.parent.name == "4"
    assert found["error"] == "ValueError: no such sample"
    assert found["frames"] == [[str(program), 9, "<module>"]]
    assert found["time"] <= ends[4]["time"]


@WAYS
def test_a_program_that_is_no_python_is_told_with_its_line(tmp_path, cold):
    (tmp_path / "typo.py").write_text("import os\n\nx = = 1\n")
    with pytest.raises(RunFailed) as caught:
        torchrun(f"--nproc-per-node 2 {tmp_path}/typo.py", cold=cold)
    failure = caught.value.run.failure
    assert (failure.cause, failure.line) == ("SyntaxError: invalid syntax", 3)
    assert caught.value.run.warnings == [[], []]


FILLS = """
import os
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    {fill}
dist.barrier()
"""


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a file system of three megabytes."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    words = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if (
        not shutil.which("mount")
        or subprocess.run(words, capture_output=True).returncode
    ):
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


RAISES = ("while True: print('x' * 100_000)", "OSError: [Errno 28] No space left")
EXITS = (
    "try:\n        while True: os.write(1, b'x' * 100_000)\n"
    "    except OSError:\n        os._exit(7)",
    "exit code 7",
)


@pytest.mark.parametrize(
    "cold, fill, cause",
    [
        pytest.param(False, *RAISES, id="raises-warm"),
        pytest.param(False, *EXITS, id="exits-warm"),
        pytest.param(True, *RAISES, id="raises-cold", marks=FULL),
        pytest.param(True, *EXITS, id="exits-cold", marks=FULL),
    ],
)
def test_a_disk_that_fills_up_is_told(
    small_disk, tmp_path, monkeypatch, cold, fill, cause
):
    (tmp_path / "fills.py").write_text(FILLS.format(fill=fill))
    torchrun(f"--nproc-per-node 1 {tmp_path}/fills.py")  # the fork server's own files
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    run = torchrun(
        f"--nproc-per-node 2 {tmp_path}/fills.py", cold=cold, expect_failure=True
    )
    failure = run.failure
    assert failure.rank == 1
    assert failure.cause.startswith(cause)
    assert not list(small_disk.iterdir())


def test_a_deep_fact_is_no_reason_to_fail(tmp_path):
    (tmp_path / "deep.py").write_text(f"print({NO_FACTS['deep']!r})\n")
    run = torchrun(f"--nproc-per-node 2 {tmp_path}/deep.py")
    assert run.failure is None and run.facts == [{}, {}]
    assert run.lines == [[NO_FACTS["deep"]]] * 2

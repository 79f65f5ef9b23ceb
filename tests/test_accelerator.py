"""The programs on accelerators that this machine plays: see accelerator/play.py.

All but those left out below run with a device for each rank, once more with one device
for all ranks, and so does every cell of every lesson.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROGRAMS, make, name_of, smaller
from ranks import take_turns
from support import FULL
from test_exercises import SOLUTIONS, solve

from ddp_lab import ROOT
from tools.notebooks import lessons

pytestmark = [FULL, pytest.mark.processes]

PLAY = Path(__file__).parent / "accelerator" / "play.py"
RANKS = 2
# Not tried here yet: sick on purpose, in need of images, or started in another way.
LEFT_OUT = ("clinic/", "cifar10/", "elastic/", "nodes/", "old_pages/", "rpc/")
OTHERS = (
    "collectives/reduce_ops.py",  # gloo refuses other operators than NCCL, and later
    "scale/exercise_cheapest.py",  # computes for long, on no device
)
ALL = [
    path
    for path in PROGRAMS
    if not name_of(path).startswith(LEFT_OUT) and name_of(path) not in OTHERS
]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile the devices once, before the clock of any run starts."""
    if not (shutil.which("g++") and shutil.which("ninja")):
        pytest.skip("needs g++ and ninja")
    code = f"import sys, torch; sys.path.append({str(PLAY.parent)!r}); import play"
    subprocess.run([sys.executable, "-c", f"{code}; play.compiled()"], check=True)


def ends(programs, devices, monkeypatch, tmp_path):
    """Return how programs end on so many devices, and what they print."""
    monkeypatch.setenv("PLAYED_ACCELERATORS", str(devices))
    small = {smaller(path, tmp_path): path for path in programs}
    ended, printed = take_turns(RANKS, [*small], timeout=60)
    return {name_of(small[path]): how for path, how in ended.items() if how}, printed


@pytest.mark.parametrize("devices", [RANKS, 1], ids=["each its own", "one shared"])
@pytest.mark.parametrize("folder", sorted({path.parent.name for path in ALL}))
def test_every_program_runs_on_devices(folder, devices, monkeypatch, tmp_path):
    programs = [path for path in ALL if path.parent.name == folder]
    failed, printed = ends(programs, devices, monkeypatch, tmp_path)
    assert failed == {}, printed[-6000:]


@pytest.mark.parametrize("devices", [RANKS, 1], ids=["each its own", "one shared"])
@pytest.mark.parametrize("folder", sorted({path.parent.name for path in ALL}))
def test_every_answer_is_right_on_devices(folder, devices, monkeypatch, tmp_path):
    answers = [
        solve(answer, tmp_path / answer.exercise.replace("/", "_"))
        for answer in SOLUTIONS
        if answer.program in ALL and answer.program.parent.name == folder
    ]
    failed, printed = ends(answers, devices, monkeypatch, tmp_path)
    assert failed == {} and "not yet" not in printed, printed[-6000:]


HELLO = ROOT / "ddp_lab" / "start" / "hello.py"
PLANTED = {
    "a tensor on the CPU": (
        "share = mine.sum()",
        "share = (mine * torch.ones(1)).sum()",
    ),
    "numpy": ("total.item()", "total.numpy().item()"),
    "a generator of the CPU": (
        "share = mine.sum()",
        "share = mine.sum()\n"
        "    torch.rand(1, device=device, generator=torch.Generator())",
    ),
    "a forgotten wait": (
        "dist.all_reduce(total)",
        "dist.all_reduce(total, async_op=True)\n    time.sleep(1)",
    ),
    "time without synchronizing": (
        "dist.all_reduce(total)",
        "dist.barrier()\n    time.sleep(rank / 4)\n    start = time.monotonic()\n"
        "    dist.all_reduce(total)\n    late = (world_size - 1 - rank) / 4\n"
        "    assert time.monotonic() - start > late / 2",
    ),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_what_fails_on_a_gpu_fails_here(mistake, variant, monkeypatch, tmp_path):
    path = Path(variant(HELLO, *PLANTED[mistake]))
    path = Path(variant(path, "import os\n", "import os\nimport time\n"))
    assert take_turns(RANKS, [path])[0] == {path: ""}  # on the CPU it is right
    failed, _ = ends([path], RANKS, monkeypatch, tmp_path)
    assert failed == {name_of(path): "exception"}


SYNCHRONIZED = "dist.all_reduce(total)\n    torch.accelerator.synchronize()"


def test_time_is_told_right_after_synchronizing(variant, monkeypatch, tmp_path):
    old, new = PLANTED["time without synchronizing"]
    path = variant(HELLO, old, new.replace(old, SYNCHRONIZED))
    path = Path(variant(path, "import os\n", "import os\nimport time\n"))
    assert ends([path], RANKS, monkeypatch, tmp_path)[0] == {}


# Of lessons that show a library's own words or limits, which the double's are not.
NOT_PLAYED = {
    "02": "gloo refuses other operators than NCCL, and later",
    "07": "torch's own GroupNorm for such devices takes no channels_last",
    "10": "the recorder calls the wire's calls gloo's",
    "11": "as in lesson 10",
    "22": "multiplies matrices of a size that takes a card",
}
PLAYED = [path.name[:2] for path in lessons() if path.name[:2] not in NOT_PLAYED]


@pytest.mark.parametrize("devices", [2, 4])
def test_every_cell_runs_on_devices(devices, clone):
    played = {"PYTHONPATH": str(PLAY.parent), "PLAYED_ACCELERATORS": str(devices)}
    chosen = f"LESSONS={' '.join(PLAYED)}"
    done = make(clone, "lab", f"NPROC={devices}", chosen, **played)
    assert done.returncode == 0, done.stdout[-6000:]

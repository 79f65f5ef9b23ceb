"""Full disks and damaged files: one sentence, and what was saved before stays whole.

The failures are real ones, for root and for any user: /dev/full has no space left, a
limit on the size of files ends a write half-way, and a process without capabilities
cannot write where nobody may.
"""

import os
import subprocess
from pathlib import Path

import pytest
from support import FULL, Later

from ddp_lab import ROOT, data
from ddp_lab.kit import torchrun, warm_python

pytestmark = pytest.mark.processes
torch = Later("torch")

# Where a program saves, and where it writes first.
SAVED = {
    "checkpoint/durable": ("model.pt", "model.tmp"),
    "checkpoint/resume": ("run.pt", "run.tmp"),
}
CIFAR10 = "--data {images} --epochs 2 --train-images 80 --test-images 7 --batch 5"
# A first life that ends early, so that a second one has something left to do.
STOPS = {
    "checkpoint/resume": ("until=STOP)  # 4", "until=STOP)\n            return  # 4"),
}
# The same layers' names with other sizes, which only a look at the tensors can tell.
OTHER_MODEL = {
    "checkpoint/resume": (
        "nn.Linear(2, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128,",
        "nn.Linear(2, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96,",
    ),
    "checkpoint/dcp": (
        "ROWS, COLUMNS, STEPS = 12, 4, 3",
        "ROWS, COLUMNS, STEPS = 12, 6, 3",
    ),
}
# Runs a program with no capability, and with files up to so many bytes.
BOUND = """
import ctypes, resource, runpy, sys
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(header, none) == 0
if limit := int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

on_linux = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs Linux: /dev/full, capabilities"
)
ranks_2_and_4 = pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Return a folder with a few images of the stand-in."""
    root = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "TRAIN", 100)
        patch.setattr(data, "TEST", 20)
        data.prepare(root)
    return root


@pytest.fixture
def folder(tmp_path):
    """Return the folder to save in, and let pytest delete it afterwards."""
    path = tmp_path / "saved"
    path.mkdir()
    yield path
    path.chmod(0o755)


@pytest.fixture(scope="module")
def lives():
    """Keep what each first life left, so that no two tests have to live it."""
    return {}


@pytest.fixture
def launch(folder, images, tmp_path):
    """Return a function that runs a program on the folder."""

    def run(name, ranks=2, change=None, limit=None, **expected):
        path = ROOT / "ddp_lab" / f"{name}.py"
        if change:
            text, path = path.read_text(), tmp_path / f"changed_{Path(name).name}.py"
            assert text.count(change[0]) == 1
            path.write_text(text.replace(*change))
        arguments = CIFAR10 if name == "cifar10/resnet" else "--dir {folder}"
        command = f"{path} {arguments.format(folder=folder, images=images)}"
        if limit is not None:
            (tmp_path / "bound.py").write_text(BOUND)
            command = f"{tmp_path / 'bound.py'} {limit} {command}"
        return torchrun(f"--nproc-per-node {ranks} {command}", timeout=30, **expected)

    return run


@pytest.fixture
def earlier(launch, folder, lives):
    """Return a function that puts an earlier checkpoint into the folder."""

    def live(name, ranks=2):
        if (name, ranks) not in lives:
            launch(name, ranks, STOPS.get(name))
            lives[name, ranks] = files(folder)
        for file, content in lives[name, ranks].items():
            (folder / file).write_bytes(content)
        return files(folder)

    return live


def files(folder: Path) -> dict[str, bytes]:
    """Return what is in the folder, by name; a device is endless and is not read."""
    return {
        path.name: path.read_bytes() if path.is_file() else b""
        for path in folder.iterdir()
    }


def sentence(run) -> str:
    """Return the one sentence with which a run ended, and nothing beside it."""
    failure = run.failure
    assert failure.kind == "exit", failure.report()
    assert failure.traceback == ""
    (text,) = run.warnings[failure.rank]
    assert failure.cause == f"exit code 1: {text}"
    return text


def refused(run) -> str:
    """Return the sentence, which came from every rank, and before anything else."""
    text = sentence(run)
    assert not any(run.lines), "it went on before it looked"
    # A rank that was slower than the others is stopped while it says the same.
    assert all(said in ([], [text]) for said in run.warnings), run.warnings
    assert set(run.exit_codes) <= {1, -15, None}
    return text


def damage_file(path: Path, damage: str) -> None:
    """Leave of the file what the damage leaves."""
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        half, text = whole[: len(whole) // 2], b"This is no checkpoint.\n" * 9
        path.write_bytes({"half": half, "empty": b"", "text": text}[damage])


@on_linux
@pytest.mark.parametrize(
    "obstacle, ranks",
    [
        ("full", 2),
        pytest.param("full", 4, marks=FULL),
        pytest.param("read-only", 2, marks=FULL),
        pytest.param("read-only", 4, marks=FULL),
    ],
)
def test_a_save_that_cannot_be(obstacle, ranks, folder, earlier, launch):
    saved, temporary = SAVED[name := "checkpoint/durable"]
    before = earlier(name, ranks)
    if obstacle == "full":
        os.symlink("/dev/full", folder / temporary)
        reason = "No space left on device"
    else:
        folder.chmod(0o555)
        reason = "Permission denied"
    run = launch(name, ranks, limit=0, expect_failure=True)
    # An exception, for torchrun to see that rank 0 failed first, and in few words.
    assert (run.failure.rank, run.failure.kind) == (0, "exception")
    assert run.failure.cause == f"OSError: cannot save in {folder}: {reason}"
    assert "During handling" not in run.failure.traceback
    folder.chmod(0o755)
    after = files(folder)
    assert after[saved] == before[saved]
    torch.load(folder / saved, weights_only=True)
    assert set(after) == set(before), "half a file is left"


@on_linux
@pytest.mark.parametrize("numbers", [10, 30_000])
def test_a_disk_that_fills_up_early_or_inside_a_tensor(numbers, tmp_path):
    # torch.save raises an OSError or, inside a large tensor, a RuntimeError.
    lines = (
        "import resource, pathlib, torch",
        "from ddp_lab.checkpoint.durable import write",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))",
        f"write(torch.zeros({numbers}), pathlib.Path({str(tmp_path)!r}, 'model.pt'))",
    )
    command = [warm_python(), "-c", "\n".join(lines)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    last = run.stderr.strip().splitlines()[-1]
    assert last == f"OSError: cannot save in {tmp_path}: File too large", run.stderr
    assert not list(tmp_path.iterdir()), "half a file is left"


@on_linux
@ranks_2_and_4
def test_pieces_on_a_full_disk(ranks, folder, launch):
    last = f"__{ranks - 1}_0.distcp"
    os.symlink("/dev/full", folder / last)
    run = launch("checkpoint/dcp", ranks, expect_failure=True)
    text = refused(run)
    assert text == f"{folder}: rank {ranks - 1}: [Errno 28] No space left on device"
    assert not (folder / ".metadata").exists(), "it passes for a checkpoint"
    (folder / last).unlink()
    run = launch("checkpoint/dcp", ranks)  # there is room again
    assert all("saved" in lines[0] for lines in run.lines)


@FULL
@on_linux
def test_pieces_in_a_folder_to_read_only(folder, launch):
    folder.chmod(0o555)
    run = launch("checkpoint/dcp", limit=0, expect_failure=True)
    assert str(folder) in (text := refused(run)) and "Permission denied" in text


def stopped(run) -> str:
    """Return why the run ended: it raised while it loaded, and did nothing else."""
    assert run.failure.kind in ("exception", "exit"), run.failure.report()
    assert not any(run.lines), "it went on before it looked"
    return run.failure.cause


@pytest.mark.parametrize(
    "damage, ranks",
    [
        ("half", 2),
        pytest.param("half", 4, marks=FULL),
        pytest.param("empty", 2, marks=FULL),
        pytest.param("text", 2, marks=FULL),
    ],
)
def test_a_damaged_checkpoint_stops_a_resume(damage, ranks, folder, earlier, launch):
    earlier("checkpoint/resume", ranks)
    damage_file(folder / "run.pt", damage)
    before = files(folder)
    stopped(launch("checkpoint/resume", ranks, expect_failure=True))
    assert files(folder) == before


@pytest.mark.parametrize("first, second", [(2, 4), pytest.param(4, 2, marks=FULL)])
def test_a_resume_with_another_number_of_ranks(first, second, folder, earlier, launch):
    before = earlier("checkpoint/resume", first)
    cause = stopped(launch("checkpoint/resume", second, expect_failure=True))
    assert f"{folder / 'run.pt'} is from {first} ranks" in cause
    assert files(folder) == before


@FULL
def test_a_resume_of_another_model(folder, earlier, launch):
    before = earlier("checkpoint/resume")
    change = OTHER_MODEL["checkpoint/resume"]
    cause = stopped(launch("checkpoint/resume", change=change, expect_failure=True))
    assert "size mismatch" in cause
    assert files(folder) == before


@pytest.mark.parametrize(
    "file, damage, ranks",
    [
        ("__1_0.distcp", "half", 2),
        pytest.param("__3_0.distcp", "half", 4, marks=FULL),
        pytest.param("__1_0.distcp", "empty", 2, marks=FULL),
        pytest.param("__1_0.distcp", "text", 2, marks=FULL),
        pytest.param("__0_0.distcp", "missing", 2, marks=FULL),
        pytest.param(".metadata", "half", 2, marks=FULL),
        pytest.param(".metadata", "empty", 2, marks=FULL),
        pytest.param(".metadata", "text", 2, marks=FULL),
    ],
)
def test_damaged_pieces(file, damage, ranks, folder, earlier, launch):
    earlier("checkpoint/dcp", ranks)
    damage_file(folder / file, damage)
    before = files(folder)
    run = launch("checkpoint/dcp", ranks, expect_failure=True)
    assert refused(run) == f"{folder / file} is missing, cut short or foreign"
    assert files(folder) == before


@FULL
@pytest.mark.parametrize("ranks", [2, 3])
def test_pieces_of_another_model(ranks, folder, earlier, launch):
    earlier("checkpoint/dcp")
    change = OTHER_MODEL["checkpoint/dcp"]
    text = refused(launch("checkpoint/dcp", ranks, change, expect_failure=True))
    assert str(folder) in text and "Size mismatch" in text and "model.weight" in text


@ranks_2_and_4
@pytest.mark.parametrize(
    "file, damage",
    [
        ("data_batch_3", "half"),
        pytest.param("data_batch_4", "missing", marks=FULL),
        pytest.param("test_batch", "text", marks=FULL),
    ],
)
def test_damaged_images(file, damage, ranks, folder, launch, images):
    path = images / "stand-in" / "cifar-10-batches-py" / file
    whole = path.read_bytes()
    damage_file(path, damage)
    try:
        run = launch("cifar10/resnet", ranks, expect_failure=True)
    finally:
        path.write_bytes(whole)
    assert refused(run) == f"no intact images in {images}: run `make data`"
    assert files(folder) == {}, "nothing was trained, but something was saved"

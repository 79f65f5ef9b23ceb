"""What the tests share: the folder, the programs, survivors, and cells of a kernel."""

import functools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from zlib import crc32

import pytest
from launched import WARM

from ddp_lab import ROOT, kit
from ddp_lab.kit import launch
from whichrank import environment
from whichrank.run import ports

pytest_plugins = ["support"]
launch.WARM = WARM  # one is enough for all

KIT = ROOT / "ddp_lab" / "kit"
SCRIPTS = ROOT / "ddp_lab" / "script"
"""Scripts as people write them, without a check and without the lab's end."""
VERDICT = ROOT / "ddp_lab" / "profiling" / "verdict.py"
"""A tool to take home, written by hand; it is no program of ranks."""
# jsonschema, which nbformat imports, does without it; its grammar takes 1.4 seconds.
sys.modules["rfc3987_syntax"] = None

# git ignores the stubs of exercises and puzzles: they are what the cells write now.
with suppress(ImportError):  # without Jupyter nobody reads notebooks
    if "PYTEST_XDIST_WORKER" not in os.environ:
        from tools import notebooks

        list(notebooks.write_scripts(notebooks.STUBS))

PROGRAMS = sorted(
    p
    for p in (ROOT / "ddp_lab").glob("*/*.py")
    if p.parent not in (KIT, SCRIPTS) and p != VERDICT
)
"""The lessons' programs."""


RESTARTS = {
    "elastic/exercise.py": "--max-restarts 5",
    "elastic/restart.py": "--max-restarts 3",
    "elastic/survive.py": "--max-restarts 3",
}
"""What torchrun is told for programs that are killed on purpose."""

ARGUMENTS = {
    "cifar10/resnet.py": "--data {data} "
    "--epochs 2 --train-images 256 --test-images 101 --batch 16",
    "elastic/survive.py": "--die 12",
}
"""Small numbers where a program's default is a lesson's worth of work."""


def name_of(program: Path) -> str:
    """Return a program's name as the lab says it: `p2p/ring.py`."""
    return f"{program.parent.name}/{program.name}"


STARTS_ITS_RANKS = {"nodes/exercise_launcher.py", "nodes/spawn.py"}
"""Programs that plain python runs, because they start their ranks themselves."""


def tracked() -> list[str]:
    """Return the names of the repository's files; [] where there is no repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = b""
    with suppress(FileNotFoundError):  # where there is no git
        listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE).stdout
    names = sorted(filter(None, listed.decode().split("\0")))
    return [name for name in names if (ROOT / name).is_file()]


def copied(folder: Path) -> Path:
    """Copy the repository, as it is now, into a repository of its own in `folder`."""
    if not (names := tracked()):
        pytest.skip("needs a git repository")
    for name in names:
        if not name.startswith("tests/evidence/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


LONG = (
    "test_accelerator.py",
    "test_book.py",
    "test_exercises.py",
    "test_launch.py",
    "test_planted_mistakes.py",
    "test_slurm.py",
    "test_solutions.py",
)
"""Files of which each takes minutes, so that no worker should come to them last."""

# A kernel is told its ports long before it listens there; those that Jupyter takes may
# meanwhile be given to any of the many processes here.
with suppress(ImportError):  # without Jupyter nobody starts a kernel
    from jupyter_client.connect import LocalPortCache

    LocalPortCache.find_available_port = lambda self, ip: ports.free_port()

# To import torch takes a kernel seconds: ours are forks of the warm process.
with suppress(ImportError):
    from ipykernel import kernelspec

    plain_kernel = kernelspec.get_kernel_dict

    def warm_kernel(*args, **kwargs) -> dict:
        told = plain_kernel(*args, **kwargs)
        if python := WARM.python(environment()):
            told["argv"][0] = python
        return told

    kernelspec.get_kernel_dict = warm_kernel


@pytest.hookimpl(tryfirst=True)  # before marks are chosen by
def pytest_collection_modifyitems(config, items):
    """Mark what needs Chromium; mix the files, each of which one worker takes.

    Those that wait come among others, in an order that is always the same.
    """
    for item in items:
        if "chromium" in item.fixturenames:
            item.add_marker("browser")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (item.path.name not in LONG, _mixed(item.path)))


def _mixed(path: Path) -> int:
    return crc32(bytes(path.relative_to(ROOT)))


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    """Work where the notebooks do."""
    monkeypatch.chdir(ROOT)


def install(folder: Path) -> Path:
    """Leave `folder` as `make setup` does; most packages are those of these tests."""
    home, here = folder / ".venv", Path(sys.prefix)
    venv.create(home, symlinks=True)
    ours = f"{folder}\n{folder}/whichrank/src"
    paths = f"{sysconfig.get_path('purelib')}\n{ours}\n"
    (next(home.glob("lib/python*/site-packages")) / "tests.pth").write_text(paths)
    for path in here.glob("bin/*"):
        copy = home / "bin" / path.name
        if not copy.exists() and path.read_bytes()[:2] != b"#!":
            copy.symlink_to(path)
        elif not copy.exists():
            copy.write_text(path.read_text().replace(str(here), str(home)))
            copy.chmod(0o755)
    for name in ("etc", "share"):  # of Jupyter and its extensions
        (home / name).symlink_to(here / name)
    for name in ("ready", "dev-ready", "classroom-ready"):
        (home / name).touch()
    return folder


def outside(**env: str) -> dict[str, str]:
    """Return the environment of a shell that knows nothing of these tests."""
    ours = re.compile(r"MAKE|MFLAGS|DDP_LAB|WHICHRANK|PYTEST|PYTHONPATH|VIRTUAL_ENV")
    kept = {name: text for name, text in os.environ.items() if not ours.match(name)}
    return kept | env


def make(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess:
    """Run `make` with `words` in `folder`; its streams are one."""
    return subprocess.run(
        ["make", *words],
        cwd=folder,
        env=outside(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """Return a fresh clone, as after `make setup`."""
    return install(copied(tmp_path_factory.mktemp("clone")))


@pytest.fixture
def variant(tmp_path):
    """Return the kit's `variant`, writing to a folder of this test."""
    return functools.partial(kit.variant, folder=tmp_path / "variants")


SMALLER = [
    ("inside/*.py", "RATE = 512, 4, 64, 8, 0.5", "RATE = 512, 4, 16, 4, 0.5"),
    ("less/hooks.py", "LOOK = 25 ", "LOOK = 75 "),
    ("less/rarely.py", "LOOK = 4, 200, 0.1, 40", "LOOK = 4, 20, 0.1, 20"),
    ("less/rarely.py", "EVERY = 20", "EVERY = 10"),
    ("cost/line.py", "round(21 * 1.6**k)", "round(21 * 1.3**k)"),
    ("cost/line.py", "ROUNDS = 5", "ROUNDS = 2"),
    ("cost/step.py", '"slow": 0.06', '"slow": 0.02'),
    ("less/exercise.py", "STEPS, RATE = 256, 200", "STEPS, RATE = 256, 120"),
    ("elastic/survive.py", "STEPS, SAVE_EVERY = 80, 5", "STEPS, SAVE_EVERY = 32, 5"),
    ("rpc/batched.py", "LARGE, PAIRS = 2048, 2", "LARGE, PAIRS = 256, 1"),
    ("sharding/zero*.py", "SAMPLES, STEPS = 3, 3", "SAMPLES, STEPS = 3, 2"),
    ("long/exercise_router.py", "LAST = 300, 150, 50", "LAST = 160, 80, 30"),
    # All ranks judge the same; here each of them its share.
    (
        "scale/exercise_cheapest.py",
        "for case in cases]",
        "for case in cases[rank::world_size]]",
    ),
    ("sharding/exercise_accumulate.py", "n in (3, 4, 2)", "n in (3, 2)"),
    ("sharding/memory.py", "for _ in range(3)]", "for _ in range(1)]"),
    ("sharding/memory.py", "for turn in turns)[1]", "for turn in turns)[0]"),
    ("rewards/*.py", "STEPS = 100", "STEPS = 60"),
]
"""Programs, what they have, and what their tests can do with: lessons run the rest."""


def smaller(program: Path, folder: Path) -> Path:
    """Return a copy of a program with small numbers, or the program if it has none."""
    text = whole = program.read_text()
    for name, large, small in SMALLER:
        if fnmatch(name_of(program), name):
            text = text.replace(large, small)
    if text == whole:
        return program
    copy = folder / program.parent.name / program.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)
    return copy


@pytest.fixture
def warm(warm, monkeypatch):
    """Return a warm start of this test's own, used by all that it launches."""
    monkeypatch.setattr(launch, "WARM", warm)
    return warm


class Cell:
    """A cell that a kernel executes, and what it has sent so far.

    Args:
        client: a `jupyter_client.BlockingKernelClient` with open channels.
        code: what the cell holds.
    """

    def __init__(self, client, code: str):
        self.client, self.messages = client, []
        self.id = client.execute(code)

    @property
    def text(self) -> str:
        """What a reader sees: every display in its last state."""
        outputs = {}
        for number, message in enumerate(self.messages):
            content = message["content"]
            name = content.get("transient", {}).get("display_id", number)
            if message["header"]["msg_type"] == "stream":
                outputs[name] = content["text"]
            elif "data" in content:
                outputs[name] = content["data"].get("text/plain", "") + "\n"
            elif "traceback" in content:
                text = "\n".join(content["traceback"]) + "\n"
                outputs[name] = re.sub(r"\x1b\[[\d;]*m", "", text)
        return "".join(outputs.values())

    @property
    def error(self) -> dict:
        """The error that the cell has ended with; empty if it has not."""
        return next(
            (m["content"] for m in self.messages if "ename" in m["content"]), {}
        )

    @property
    def size(self) -> int:
        """Bytes of all messages so far, those that a later one replaced included."""
        return sum(len(json.dumps(message["content"])) for message in self.messages)

    def wait_for(self, *texts: str, seconds: float = 90) -> "Cell":
        """Wait until the cell shows all of `texts`."""
        return self.wait(lambda: all(text in self.text for text in texts), seconds)

    def end(self, seconds: float = 90) -> "Cell":
        """Wait until the kernel is idle again."""
        idle = {"execution_state": "idle"}
        return self.wait(lambda: idle in [m["content"] for m in self.messages], seconds)

    def wait(self, condition, seconds: float) -> "Cell":
        """Wait until `condition()` is true of what has arrived."""
        deadline = time.monotonic() + seconds
        while not condition():
            shown = f"...{self.text[-2000:]}"
            assert time.monotonic() < deadline, f"after {seconds} s there is:\n{shown}"
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") == self.id:
                self.messages.append(message)
        return self

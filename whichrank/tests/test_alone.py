"""The command `whichrank` by itself, in an environment that has no torch.

Its wheel, psutil and py-spy are all that is there. It is asked about jobs of
another environment, which is that of these tests.
"""

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import psutil
import pytest
from support import FULL, HOUSE, wait_until

pytestmark = pytest.mark.processes

BUILD = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
PROGRAM = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    open("begun", "w").close()
    time.sleep(600)
dist.all_reduce(torch.ones(4))
"""
RAISES = """
import os, time
rank = int(os.environ["RANK"])
if rank == 1:
    raise ValueError(rank)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HOUSE / name, folder)
    ours = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(HOUSE / "src", folder / "src", ignore=ours)
    words = [sys.executable, "-c", BUILD]
    built = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=True
    )
    return folder / "dist" / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory):
    """Return the command, in an environment that has it, and what it needs, alone."""
    home = tmp_path_factory.mktemp("alone")
    venv.create(home, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--quiet"]
    install = [*pip, "install", "--no-index", "--no-deps", wheel]
    subprocess.run(install, env=elsewhere(), check=True)
    (site / "psutil").symlink_to(Path(psutil.__file__).parent)
    (home / "bin" / "py-spy").symlink_to(Path(sys.executable).with_name("py-spy"))
    for missing in ("torch", "IPython", "numpy"):
        words = [home / "bin" / "python", "-c", f"import {missing}"]
        assert subprocess.run(words, capture_output=True).returncode
    return home / "bin" / "whichrank"


def elsewhere() -> dict[str, str]:
    """Return the variables of a shell in which this environment is the active one."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env["PATH"] = f"{sysconfig.get_path('scripts')}:{env['PATH']}"
    return env


def test_a_wheel_asks_for_no_torch(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        told = next(name for name in names if name.endswith("METADATA"))
        needs = email.message_from_bytes(packed.read(told)).get_all("Requires-Dist")
    assert [need for need in needs if "extra" not in need] == ["psutil", "py-spy"]
    assert "whichrank/py.typed" in names


@FULL
def test_a_job_of_another_environment_is_explained(command, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    here = {"cwd": tmp_path, "env": elsewhere()}
    job = subprocess.Popen(torchrun, **here, stderr=subprocess.DEVNULL)
    try:
        assert wait_until((tmp_path / "begun").exists, 90)
        words = [command, "why", str(job.pid), "--seconds", "3"]
        told = subprocess.run(words, **here, capture_output=True, text=True).stdout
    finally:
        job.terminate()
        job.wait()
    assert "rank 1: has not come, and rank 0 waits in all_reduce" in told
    assert "at train.py:10 in <module>: time.sleep(600)" in told


def test_it_runs_the_python_that_the_shell_would(command, tmp_path):
    (tmp_path / "train.py").write_text(RAISES)  # torchrun alone needs torch
    words = [command, "torchrun", "--nproc-per-node", "2", "train.py"]
    here = {"cwd": tmp_path, "env": elsewhere()}
    done = subprocess.run(words, **here, capture_output=True, text=True)
    assert done.returncode == 1
    assert "rank 1: ValueError: 1\n  at train.py:5 in <module>" in done.stderr

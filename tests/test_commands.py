"""The commands of the Makefiles, as a person calls them, in a fresh clone."""

import re
import subprocess
import sys

import pytest
from conftest import copied, make, outside
from support import FULL

from ddp_lab import ROOT

pytestmark = pytest.mark.processes

NOWHERE = "http://127.0.0.1:9"  # where no proxy listens
BUILD = "from setuptools import build_meta; build_meta.build_editable('build')"


@pytest.mark.parametrize("words", [[], ["help"]])
def test_make_prints_every_target(clone, words):
    printed = re.findall(r"^  ([a-z-]+) +\S", make(clone, *words).stdout, re.M)
    texts = [(ROOT / name).read_text() for name in ("Makefile", "authors.mk")]
    assert printed == re.findall(r"^([a-z-]+):.* ## ", "\n".join(texts), re.M)


@pytest.mark.parametrize(
    ("target", "name"), [("scripts", "ddp_lab/p2p/ring.py"), ("figs", "figs/world.svg")]
)
def test_make_writes_what_is_committed(clone, target, name):
    (clone / name).unlink()
    done = make(clone, target)
    assert done.returncode == 0, done.stdout
    assert (clone / name).read_bytes() == (ROOT / name).read_bytes()


def test_make_data_without_a_network_and_make_clean(clone):
    done = make(clone, "data", https_proxy=NOWHERE)
    assert done.returncode == 0, done.stdout
    assert "cannot be reached" in done.stdout and "stand-in shapes: 10,0" in done.stdout
    (clone / "build" / "lab").mkdir(parents=True, exist_ok=True)
    done = make(clone, "clean")
    assert done.returncode == 0, done.stdout
    left = {path.name for path in clone.iterdir()}
    assert (clone / "data" / "stand-in").is_dir() and ".venv" in left
    assert "build" not in left and not [*clone.glob("ddp_lab/**/__pycache__")]


@FULL
def test_make_lab_leaves_notebooks_and_pages_that_can_be_mailed(clone):
    done = make(clone, "lab", "LESSONS=0", "NPROC=3")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^00_start_here +\d+ +3 +ok, outputs not", done.stdout, re.M)
    page = (clone / "build" / "lab" / "00_start_here.html").read_text()
    assert "[rank 2]" in page
    sources = re.findall(r"""<img\b[^>]*?\ssrc=["']([^"']{0,14})""", page)
    assert sources and all(source.startswith("data:image/") for source in sources)


@FULL
def test_make_outputs_executes_a_lesson_in_place(clone):
    notebook = clone / "notebooks" / "00_start_here.ipynb"
    text = notebook.read_text()
    notebook.write_text(text.replace('"[rank 0]', '"[rank 9]'))
    assert notebook.read_text() != text
    done = make(clone, "outputs", "LESSONS=00")
    assert done.returncode == 0, done.stdout
    assert "[rank 9]" not in notebook.read_text()


def test_an_editable_installation_gives_no_warning(tmp_path):
    """pip shows what the build says, to a newcomer in the first minutes."""
    folder = copied(tmp_path)
    words = [sys.executable, "-W", "error", "-c", BUILD]
    done = subprocess.run(words, cwd=folder, env=outside(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert len([*folder.glob("build/*.whl")]) == 1


@FULL
def test_make_setup_says_what_it_does_and_warns_of_nothing(tmp_path):
    """Without what the lab needs, which is 6 GB; with the rest as it is."""
    folder = copied(tmp_path)
    done = make(folder, "setup", PIP_NO_DEPS="1", PIP_ROOT_USER_ACTION="ignore")
    if "NewConnectionError" in done.stdout:
        pytest.skip("needs a package index")
    assert done.returncode == 0, done.stdout
    before, _, after = done.stdout.partition("about 6 GB on disk")
    assert "pip install -r" in after and "pip install -r" not in before
    assert "Successfully installed ddp-lab" in after
    assert "Building editable" in after  # pip says itself what it is at
    assert "Warning:" not in after  # as in BuildBackendWarning
    # In work/ there is a folder of the same name.
    (folder / "work" / "ddp_lab").mkdir(parents=True)
    words = [folder / ".venv" / "bin" / "python", "-c", "import ddp_lab as d; d.ROOT"]
    subprocess.run(words, cwd=folder / "work", env=outside(), check=True)
    assert "Nothing to be done" in make(folder, "setup").stdout

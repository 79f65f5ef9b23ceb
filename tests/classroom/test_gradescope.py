"""The autograder for Gradescope, in folders laid out as Gradescope does.

gradescope-autograders.readthedocs.io/en/latest/specs says what it finds there and what
it has to leave.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import nbformat
import psutil
import pytest
from course import REGION, as_notebook, cells, solution
from support import wait_until

from classroom.engine import runner
from classroom.engine.assignment import load, names, notebook
from classroom.engine.check import try_case
from classroom.extras import gradescope
from ddp_lab import ROOT
from ddp_lab.kit import warm_python

pytestmark = pytest.mark.sandbox
USER = "nobody"  # who stands for the user that setup.sh makes


# --- the zip ---


@pytest.mark.parametrize("name", names())
def test_no_solution_and_no_mistake_is_in_the_zip(name, tmp_path):
    gradescope.build(name, tmp_path / "autograder.zip")
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        assert archive.getinfo("run_autograder").external_attr >> 16 & stat.S_IXUSR
        course = [n for n in archive.namelist() if n.startswith("lab/classroom/")]
        assert not any("mistakes" in n for n in course)
        (path,) = (n for n in course if n.endswith(".ipynb"))
        text = "\n".join(archive.read(n).decode() for n in course)
        asked = nbformat.reads(archive.read(path).decode(), as_version=4).cells
    ids = [cell.metadata.nbgrader.grade_id for cell in asked]
    assert ids == [cell.name for cell in cells(name)]
    for cell in nbformat.read(notebook("source", name), as_version=4).cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") in load(name).PROGRAMS:
            for _, region in REGION.findall(cell.source + "\n"):
                assert region not in text
                assert json.dumps(region)[1:-1] not in text  # as a notebook has it


def test_what_the_warm_process_imports_is_installed():
    text = "import sys\nfrom whichrank.run import fork_server\nfork_server.load()\n"
    text += "print(*{name.partition('.')[0] for name in list(sys.modules)})"
    done = subprocess.run(
        [warm_python(), "-c", text],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # or a thread is no clean start
        capture_output=True,
        text=True,
        check=True,
    )
    packages = packages_distributions()
    loaded = {name for one in done.stdout.split() for name in packages.get(one, [])}
    needs = [*requires("ddp-lab"), *requires("whichrank")]
    direct = {re.match(r"[\w-]+", line)[0] for line in needs}
    direct -= {"whichrank"}  # a folder of the zip
    assert "torch" in direct & loaded <= set(gradescope.NEEDED)


# --- the results ---


def test_results_are_as_gradescope_documents_them():
    criteria = {
        "right": {"points": 2, "state": "pass", "lines": ["2 ranks: pass"]},
        "bytes": {"points": 4, "state": "fail", "lines": ["2: pass", "3: fail: no"]},
        "start": {"points": 1, "state": "not yet", "lines": ["not yet"]},
        "fast": {"points": 3, "state": "blocked", "lines": ["no GPU"]},
    }
    found = gradescope.results(criteria, "2 cells write ring.py", ["start"])
    right, some, start, fast = found.pop("tests")
    assert found == {"score": 2, "output": "2 cells write ring.py"}
    seen = {"visibility": "visible"}
    assert right == seen | {"name": "right", "score": 2, "max_score": 2} | {
        "status": "passed",
        "output": "2 ranks: pass",
    }
    assert some == seen | {"name": "bytes", "score": 0, "max_score": 4} | {
        "status": "failed",
        "output": "2: pass\n3: fail: no",
    }
    assert (start["score"], start["status"]) == (0, "failed")
    assert start["visibility"] == "after_due_date"
    # What is blocked has no score: a person grades it.
    assert fast == seen | {"name": "fast (could not be judged here)"} | {
        "max_score": 3,
        "output": "no GPU",
    }


def test_students_cannot_try_diagnoses_one_by_one():
    held = load("clinic").HELD_BACK
    assert {*held} == {c.name for c in cells("clinic") if "diagnosis" in c.name}


# --- in the container ---


STUBS = {
    "apt-get": "exit $APT",
    "id": "exit 1",
    "useradd": 'echo "$@" > "$LAB/user"',
    # -m venv FOLDER; then it is pip.
    "python3": '[ "$2" != venv ] || (mkdir -p "$3/bin" && cp "$0" "$3/bin/pip")',
}


@pytest.fixture
def autograder(tmp_path):
    """Return a folder such as /autograder, with an autograder of one quick case."""
    gradescope.build("ring", tmp_path / "autograder.zip")
    shutil.unpack_archive(tmp_path / "autograder.zip", tmp_path / "source")
    path = tmp_path / "source/lab/classroom/source/ring/ring.ipynb"
    asked = nbformat.read(path, as_version=4)
    asked.cells = asked.cells[:1]
    asked.cells[0].source = 'check("right", dict(ranks=3, length=12, seed=2))'
    nbformat.write(asked, path)
    (tmp_path / "submission").mkdir()
    return tmp_path


@pytest.fixture
def lab():
    """Return a folder such as /opt/lab, which all users may read."""
    folder = Path(tempfile.mkdtemp(prefix="classroom-lab-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("works", [True, False])
def test_the_set_up_gives_students_what_they_need(works, autograder, lab):
    """Without what the system and pip would do."""
    stubs = autograder / "bin"
    stubs.mkdir()
    for name, text in STUBS.items():
        (stubs / name).write_text(f"#!/bin/sh\n{text}\n")
        (stubs / name).chmod(0o755)
    env = os.environ | {"AUTOGRADER": str(autograder), "LAB": str(lab)}
    env |= {"PATH": f"{stubs}:{os.environ['PATH']}", "APT": "0" if works else "1"}
    script = str(autograder / "source" / "setup.sh")
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == works, done.stderr
    if works:
        assert "student" in (lab / "user").read_text()
        assert (lab / "runner.py").exists() and (lab / "ddp_lab/__init__.py").exists()
        assert stat.S_IMODE((autograder / "source").stat().st_mode) == 0o700


@pytest.fixture
def other(lab, monkeypatch):
    """Let programs run as another user, who finds in `lab` what they need."""
    words = [sys.executable, "-c", "import torch"]
    try:
        subprocess.run(words, user=USER, cwd="/", check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs root, and a Python that others may use as well")
    monkeypatch.setattr(gradescope, "STUDENT", USER)
    shutil.copytree(ROOT / "ddp_lab", lab / "ddp_lab")
    shutil.copytree(ROOT / "whichrank/src/whichrank", lab / "whichrank")
    shutil.copy(runner.__file__, lab)


def run(autograder: Path, lab: Path) -> subprocess.CompletedProcess:
    """Run the script as Gradescope does."""
    env = os.environ | {"AUTOGRADER": str(autograder), "LAB": str(lab)}
    words = ["bash", str(autograder / "source" / "run_autograder")]
    env["LAB_PYTHON"] = sys.executable
    return subprocess.run(words, env=env, capture_output=True)


def test_a_submission_is_judged(autograder, lab, other):
    module = autograder / "source/lab/classroom/extras/gradescope.py"
    module.write_text(module.read_text().replace('"student"', f'"{USER}"'))
    # As browsers call what is downloaded twice.
    path = autograder / "submission" / "ring (1).ipynb"
    path.write_text(nbformat.writes(as_notebook("ring", solution("ring"))))
    done = run(autograder, lab)
    assert done.returncode == 0, done.stderr
    found = json.loads((autograder / "results" / "results.json").read_text())
    (right,) = found["tests"]
    assert found["score"] == right["score"] > 0 and right["name"] == "right"
    assert right["output"] == "right, 3 ranks, 12 numbers: pass"


def test_results_are_for_nobody_else_and_trouble_is_no_success(autograder, lab):
    shutil.rmtree(autograder / "source" / "lab" / "classroom" / "assignments" / "ring")
    assert run(autograder, lab).returncode != 0
    results = autograder / "results"
    assert [*results.iterdir()] == [] and stat.S_IMODE(results.stat().st_mode) == 0o700


CASE = {"ranks": 2, "length": 8, "seed": 1}
LOOKS = """def all_reduce(x):
    import os, subprocess
    subprocess.Popen(['sleep', '600'], start_new_session=True)
    raise ValueError(f"uid {os.getuid()} reads {open('SECRET').read()}")
"""


def test_programs_read_no_secret_and_nothing_of_them_is_left(other, lab, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a hidden case")
    secret.chmod(0o600)
    looks = {"ring.py": LOOKS.replace("SECRET", str(secret))}
    rig = gradescope.OtherUser(load("ring"), looks, lab)
    said = str(try_case(rig, "right", CASE))
    assert "PermissionError" in said and "hidden" not in said

    def left() -> list:
        found = psutil.process_iter(["username", "status"])
        mine = [p for p in found if p.info["username"] == USER]
        return [p for p in mine if p.info["status"] != psutil.STATUS_ZOMBIE]

    assert wait_until(lambda: not left()), left()


def test_there_is_an_end_before_gradescope_s_own(lab, monkeypatch):
    monkeypatch.setattr(gradescope, "SECONDS", -1)
    rig = gradescope.OtherUser(load("ring"), solution("ring"), lab)
    assert try_case(rig, "right", CASE).state == "blocked"

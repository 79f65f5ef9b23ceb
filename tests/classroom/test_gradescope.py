"""The autograder for Gradescope, in folders laid out as Gradescope does.

gradescope-autograders.readthedocs.io/en/latest/specs and .../submission_metadata say
what it finds there and what it has to leave.
"""

import json
import os
import pwd
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
from conftest import wait_until
from course import REGION, as_notebook, cells, solution, starter

from classroom.engine import judge, runner
from classroom.engine.assignment import load, names, notebook
from classroom.engine.check import try_case
from classroom.extras import gradescope
from ddp_lab import ROOT
from ddp_lab.kit.run.here import warm_python

pytestmark = pytest.mark.sandbox

METADATA = {
    "id": 123456,
    "created_at": "2026-03-01T14:22:32.365935-05:00",
    "assignment": {
        "due_date": "2026-03-02T23:59:00.000000-05:00",
        "id": 4711,
        "title": "Ring",
        "total_points": "10.0",
    },
    "users": [{"email": "anna@example.org", "id": 1234, "name": "Anna Ahlgren"}],
    "previous_submissions": [],
}
# What the documentation names; a test's visibility is one of these, too.
OF_ALL = {"score", "execution_time", "output", "output_format", "test_output_format"}
OF_ALL |= {"test_name_format", "visibility", "stdout_visibility", "extra_data"}
OF_ALL |= {"tests", "leaderboard"}
OF_A_TEST = {"score", "max_score", "status", "name", "name_format", "number", "output"}
OF_A_TEST |= {"output_format", "tags", "visibility", "extra_data"}
VISIBILITIES = {"hidden", "after_due_date", "after_published", "visible"}


def documented(results: dict) -> dict[str, dict]:
    """Check results as the documentation has them; return the tests by name."""
    assert set(results) <= OF_ALL and isinstance(results["score"], int | float)
    assert {results["visibility"], results["stdout_visibility"]} <= VISIBILITIES
    assert isinstance(results["execution_time"], int)
    for test in results["tests"]:
        assert set(test) <= OF_A_TEST and test["visibility"] in VISIBILITIES
        assert test.get("status", "passed") in ("passed", "failed")
        assert isinstance(test["output"], str)
    return {test["name"]: test for test in results["tests"]}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "autograder.zip"
    gradescope.build("ring", path)
    return path


@pytest.fixture
def autograder(built, tmp_path) -> Path:
    """Return a folder such as /autograder; one case of two criteria, to be quick."""
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "source")
    path = tmp_path / "source/lab/classroom/source/ring/ring.ipynb"
    asked = nbformat.read(path, as_version=4)
    asked.cells = asked.cells[:2]
    for cell, length, points in zip(asked.cells, (12, 10), (2, 1), strict=True):
        name, cell.metadata.nbgrader.points = cell.metadata.nbgrader.grade_id, points
        cell.source = f'check("{name}", dict(ranks=3, length={length}, seed=2))'
    nbformat.write(asked, path)
    (tmp_path / "submission").mkdir()
    (tmp_path / "submission_metadata.json").write_text(json.dumps(METADATA))
    return tmp_path


def run(autograder: Path) -> tuple[dict, str]:
    """Run the script as Gradescope does; return the results, and what it printed."""
    script = autograder / "source" / "run_autograder"
    env = os.environ | {"AUTOGRADER": str(autograder), "LAB_PYTHON": sys.executable}
    env["LAB"] = str(autograder / "lab")
    done = subprocess.run(
        ["bash", str(script)], env=env, cwd=autograder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads((autograder / "results/results.json").read_text()), done.stdout


def hand_in(autograder: Path, answer: dict[str, str], name: str = "ring") -> None:
    path = autograder / "submission" / f"{name}.ipynb"
    path.write_text(nbformat.writes(as_notebook("ring", answer)))


def test_a_submission_is_judged(autograder):
    # As browsers call what is downloaded twice.
    hand_in(autograder, solution("ring"), "ring (1)")
    results, said = run(autograder)
    tests = documented(results)
    assert results["score"] == 3 and "output" not in results
    assert results["stdout_visibility"] == "hidden"  # the secret is in it
    right = {"name": "right", "score": 2.0, "max_score": 2.0, "status": "passed"}
    right |= {"output": "right, 3 ranks, 12 numbers: pass", "visibility": "visible"}
    assert tests["right"] == right
    assert "Gradescope's assignment has 10 points, the criteria 3" in said


def test_what_was_not_handed_in_is_told(autograder):
    results, _ = run(autograder)
    tests = documented(results)
    assert results["score"] == 0 and "there is no ring.ipynb" in results["output"]
    assert {test["status"] for test in tests.values()} == {"failed"}


def test_of_two_notebooks_none_is_taken_for_the_one_that_is_asked_for(autograder):
    hand_in(autograder, solution("ring"), "a")
    hand_in(autograder, starter("ring"), "b")
    folder = autograder / "submission"
    assert gradescope.submitted(folder, "ring") == folder / "ring.ipynb"  # not there


def test_results_are_for_nobody_else_and_trouble_is_no_success(autograder):
    shutil.rmtree(autograder / "source" / "lab" / "classroom" / "assignments" / "ring")
    words = ["bash", str(autograder / "source" / "run_autograder")]
    env = os.environ | {"AUTOGRADER": str(autograder), "LAB_PYTHON": sys.executable}
    assert subprocess.run(words, env=env, capture_output=True).returncode != 0
    results = autograder / "results"
    assert [*results.iterdir()] == [] and stat.S_IMODE(results.stat().st_mode) == 0o700


@pytest.mark.parametrize(("asked", "told"), [("10.0", ""), ("8", "8"), (12, "12")])
def test_another_sum_of_points_is_told(asked, told, tmp_path, capsys):
    metadata = {"assignment": {"total_points": asked}}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    gradescope._compare_points(tmp_path / "metadata.json", [*cells("ring")])
    said = f"Gradescope's assignment has {told} points, the criteria 10\n"
    assert capsys.readouterr().out == (said if told else "")


def test_cases_are_drawn_with_a_secret_and_there_is_an_end(monkeypatch, tmp_path):
    seen = []

    def try_all(rig, cells):
        seen.append(rig)
        return {}, True

    monkeypatch.setattr(gradescope.judge, "try_all", try_all)
    monkeypatch.setattr(gradescope.sandbox, "available", lambda: None)
    monkeypatch.setattr(gradescope.assignments, "names", lambda: ["ring"])
    (tmp_path / "results").mkdir()
    gradescope.main(tmp_path, tmp_path)
    (rig,) = seen
    assert rig.secret == judge.SECRET


def test_each_case_has_its_line():
    found = judge.Report("ring", "anna", "")
    lines = ["right, 2 ranks: pass", "right, 3 ranks: fail: no"]
    found.criteria["right"] = {"points": 2, "state": "fail", "lines": lines}
    (test,) = gradescope.results(found)["tests"]
    assert test["output"] == "right, 2 ranks: pass\nright, 3 ranks: fail: no"


STUBS = {
    "apt-get": "exit $APT",
    "id": "exit 1",
    "useradd": 'echo "$@" > "$LAB/user"',
    # -m venv FOLDER; then it is pip.
    "python3": '[ "$2" != venv ] || (mkdir -p "$3/bin" && cp "$0" "$3/bin/pip")',
}


@pytest.mark.parametrize("works", [True, False])
def test_the_set_up_gives_students_what_they_need(works, autograder, tmp_path):
    """Without what the system and pip would do."""
    lab = tmp_path / "lab"
    for folder in (lab, tmp_path / "bin"):
        folder.mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    env = os.environ | {"AUTOGRADER": str(autograder), "LAB": str(lab)}
    env |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    env |= {"APT": "0" if works else "1"}
    script = str(autograder / "source" / "setup.sh")
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == works, done.stderr
    if works:
        assert "student" in (lab / "user").read_text()
        assert (lab / "runner.py").exists() and (lab / "ddp_lab/__init__.py").exists()
        assert stat.S_IMODE((autograder / "source").stat().st_mode) == 0o700


def test_what_is_blocked_has_neither_score_nor_status():
    found = judge.blocked("ring", "anna", "no GPU")
    found.criteria["right"] = {"points": 2, "state": "pass", "lines": ["right: pass"]}
    found.criteria["messages"]["state"] = "not yet"
    tests = documented(gradescope.results(found))
    assert tests["messages"]["status"] == "failed" and tests["messages"]["score"] == 0
    held = tests["bytes_sent (could not be judged here)"]
    assert "score" not in held and "status" not in held and held["max_score"] == 4
    assert "no GPU" in held["output"]
    assert gradescope.results(found)["score"] == 2


def test_the_zip_has_what_gradescope_wants_at_its_root(built):
    with zipfile.ZipFile(built) as archive:
        found = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert archive.read("requirements.txt").startswith(b"torch==2.")
    assert {"setup.sh", "run_autograder", "requirements.txt"} <= set(found)
    assert found["run_autograder"] & stat.S_IXUSR and found["setup.sh"] & stat.S_IXUSR


@pytest.mark.parametrize("name", names())
def test_no_solution_and_no_mistake_is_in_the_zip(name, tmp_path):
    gradescope.build(name, tmp_path / "autograder.zip")
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        course = [n for n in archive.namelist() if n.startswith("lab/classroom/")]
        assert not any("mistakes" in n for n in course)
        (path,) = (n for n in course if n.endswith(".ipynb"))
        text = "\n".join(archive.read(n).decode() for n in course)
        asked = nbformat.reads(archive.read(path).decode(), as_version=4).cells
    names = [cell.metadata.nbgrader.grade_id for cell in asked]
    assert names == [cell.name for cell in cells(name)]
    for cell in nbformat.read(notebook("source", name), as_version=4).cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") in load(name).PROGRAMS:
            for _, region in REGION.findall(cell.source + "\n"):
                assert region not in text
                assert json.dumps(region)[1:-1] not in text  # as a notebook has it


def test_what_the_warm_process_imports_is_installed():
    text = "import sys\nfrom ddp_lab.kit.run import fork_server\nfork_server.load()\n"
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
    direct = {re.match(r"[\w-]+", line)[0] for line in requires("ddp-lab")}
    asked = direct & loaded
    assert "torch" in asked <= set(gradescope.NEEDED)


def test_the_scripts_are_shell():
    for name in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", str(gradescope.RECIPE / name)], check=True)


# --- where there is no bubblewrap ---


def others_may_use_this_python() -> bool:
    words = [sys.executable, "-c", "import torch"]
    try:
        done = subprocess.run(words, user="nobody", cwd="/", capture_output=True)
    except OSError:  # its folder is closed to them
        return False
    return done.returncode == 0


@pytest.fixture
def other(monkeypatch):
    """Return a function: a rig for an answer, whose runs are the user nobody's."""
    if os.geteuid() != 0 or not others_may_use_this_python():
        pytest.skip("needs root, and a Python that others may use as well")
    monkeypatch.setattr(gradescope, "STUDENT", "nobody")
    lab = Path(tempfile.mkdtemp(prefix="classroom-lab-"))
    lab.chmod(0o755)
    shutil.copytree(ROOT / "ddp_lab", lab / "ddp_lab")
    shutil.copy(runner.__file__, lab)
    yield lambda answer: gradescope.OtherUser(load("ring"), answer, lab)
    shutil.rmtree(lab)


CASE = {"ranks": 2, "length": 8, "seed": 1}
LOOKS = """def all_reduce(x):
    import os
    raise ValueError(f"uid {os.getuid()} reads {open('SECRET').read()}")
"""


def test_programs_run_as_a_user_who_can_read_no_secret(other, tmp_path):
    assert try_case(other(solution("ring")), "right", CASE).state == "pass"
    secret = tmp_path / "secret"
    secret.write_text("a hidden case")
    secret.chmod(0o600)
    looks = {"ring.py": LOOKS.replace("SECRET", str(secret))}
    verdict = try_case(other(looks), "right", CASE)
    assert "PermissionError" in str(verdict) and "hidden" not in str(verdict)


def test_nothing_of_that_user_is_left(other):
    stays = "def all_reduce(x):\n    import subprocess\n"
    stays += "    subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    try_case(other({"ring.py": stays}), "right", CASE)
    uid = pwd.getpwnam("nobody").pw_uid

    def left() -> list:
        found = psutil.process_iter(["uids", "status"])
        mine = [p for p in found if p.info["uids"].real == uid]
        return [p for p in mine if p.info["status"] != psutil.STATUS_ZOMBIE]

    assert wait_until(lambda: not left()), left()


def test_no_fence_is_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gradescope.sandbox, "available", lambda: "no bubblewrap")
    monkeypatch.setattr(gradescope, "STUDENT", "nobody-of-this-name")
    rig = gradescope.rig(load("ring"), starter("ring"), tmp_path)
    assert type(rig) is gradescope.Rig
    assert "nothing but the container fences" in capsys.readouterr().out
    monkeypatch.setattr(gradescope, "STUDENT", "nobody")
    rig = gradescope.rig(load("ring"), starter("ring"), tmp_path)
    assert isinstance(rig, gradescope.OtherUser)

"""An autograder for Gradescope.

    python -m classroom.extras.gradescope ring

builds its zip, and what run_autograder starts there is

    python -m classroom.extras.gradescope /autograder /opt/lab

gradescope-autograders.readthedocs.io/en/latest/specs says what Gradescope wants: a zip
with setup.sh and run_autograder at its root, which comes to /autograder/source; the
submission in /autograder/submission; results in /autograder/results/results.json.
The container is the fence around a submission: its programs run as a user who can read
neither hidden cases nor results.
"""

import json
import os
import pwd
import subprocess
import sys
import time
import zipfile
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path

import nbformat

import whichrank
from classroom.engine import assignment as assignments
from classroom.engine import judge, runner, sandbox
from classroom.engine.assignment import LAB, Assignment, home, load, notebook
from classroom.engine.rig import Busy, Rig
from classroom.engine.submission import answers
from ddp_lab import ROOT, from_here

RECIPE = ROOT / "classroom" / "gradescope"
NEEDED = ["torch", "torchvision", "numpy", "pillow", "nbformat", "psutil", "py-spy"]
STUDENT = "student"  # as setup.sh calls the user
SECONDS = 1000  # for a submission; the guide says to ask Gradescope for 20 minutes
# Serves one run, as another user; what it answers with is nobody else's to write.
CHILD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: see prctl(2)
sys.path.insert(0, sys.argv[1])
import runner
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
limits = runner.graded(int(sys.argv[2]))
runner.write(answers, *runner.execute(*runner.read(sys.stdin.buffer), limits))
"""


# --- the zip ---


def build(name: str, path: Path) -> None:
    """Write the autograder of an assignment: no solution and no mistake is in it.

    Its notebook has the cells that grade, and nothing else.
    """
    parts = {f"assignments/{name}": home(name) / "assignments" / name}
    parts |= {n: LAB / n for n in (".", "assignments", "assignments/beside")}
    parts |= {n: LAB / n for n in ("engine", "extras")}
    torch, *others = NEEDED
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(RECIPE.iterdir()):
            archive.write(file, file.name)  # with its mode: run_autograder is started
        wanted = [f"{torch}=={version(torch).split('+')[0]}", *others]
        archive.writestr("requirements.txt", "\n".join(wanted))
        for folder, source in parts.items():
            for file in sorted(source.glob("*.py")):
                if file.name != "nbgrader_config.py":
                    place = Path("lab/classroom", folder, file.name)
                    archive.write(file, str(place))
        for file in sorted((ROOT / "ddp_lab").rglob("*.py")):
            archive.write(file, f"lab/{file.relative_to(ROOT)}")
        launcher = Path(whichrank.__file__).parent
        for file in sorted(launcher.rglob("*.py")):
            archive.write(file, f"lab/{file.relative_to(launcher.parent)}")
        cells = nbformat.read(notebook("source", name), as_version=4)
        cells.cells = [
            c for c in cells.cells if c.metadata.get("nbgrader", {}).get("grade")
        ]
        text = nbformat.writes(cells)
        archive.writestr(f"lab/classroom/source/{name}/{name}.ipynb", text)


# --- in the container ---


class OtherUser(Rig):
    """A rig whose runs are those of a user who may read no secret.

    Args:
        assignment: as of `Rig`.
        programs: as of `Rig`.
        lab: where that user finds ddp_lab and runner.py.
    """

    def __init__(self, assignment: Assignment, programs: Mapping[str, str], lab: Path):
        super().__init__(assignment, programs)
        self.lab, self.end = lab, time.monotonic() + SECONDS

    def _execute(self, header: dict, files: dict[str, bytes]) -> runner.Answer:
        if time.monotonic() > self.end:
            raise Busy(f"{SECONDS} seconds have passed")
        recorder = Path(header["recorder"])
        recorder.parent.chmod(0o755)
        recorder.chmod(0o777)
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.lab), str(sandbox.Limits.output)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=STUDENT,
            group=pwd.getpwnam(STUDENT).pw_gid,
            extra_groups=[],
            env={"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8"},
            cwd="/",
        )
        try:
            assert process.stdin and process.stdout
            runner.write(process.stdin, header, files)
            return runner.read(process.stdout)
        except (OSError, EOFError, ValueError) as error:
            return {"failure": f"the run broke off ({type(error).__name__})"}, {}
        finally:
            self.close()
            process.wait()

    def close(self) -> None:
        """Kill all processes of that user."""
        words = [sys.executable, "-c", "import os; os.kill(-1, 9)"]
        subprocess.run(words, user=STUDENT, cwd="/", check=False)


def submitted(folder: Path, name: str) -> Path:
    """Return the notebook that was handed in, whatever it is called, if it is one."""
    found = sorted(folder.rglob("*.ipynb"))
    return found[0] if len(found) == 1 else folder / f"{name}.ipynb"


def results(
    criteria: Mapping[str, judge.Judged], note: str, held_back: Collection[str]
) -> dict:
    """Return what became of a submission as results.json has it.

    A criterion that is blocked has neither score nor status: a person grades it.

    Args:
        criteria: by name.
        note: what is wrong with the file.
        held_back: criteria of which students learn after the due date; until then
            Gradescope shows them no total either.
    """
    tests = []
    for name, found in criteria.items():
        test: dict = {"name": name, "max_score": found["points"]}
        test["output"] = "\n".join(found["lines"])
        test["visibility"] = "after_due_date" if name in held_back else "visible"
        if found["state"] == "blocked":
            test["name"] += " (could not be judged here)"
        else:
            passed = found["state"] == "pass"
            test["score"] = found["points"] if passed else 0.0
            test["status"] = "passed" if passed else "failed"
        tests.append(test)
    score = sum(test.get("score", 0.0) for test in tests)
    return {"score": score, "tests": tests} | ({"output": note} if note else {})


def main(autograder: Path, lab: Path) -> None:
    """Judge the submission in a folder laid out as Gradescope does."""
    (name,) = assignments.names()
    source = load(name)
    path = submitted(autograder / "submission", name)
    programs, note = answers(path, source.PROGRAMS)
    rig = OtherUser(source, programs, lab)
    rig.secret = judge.SECRET
    try:
        found = judge.try_all(rig, assignments.criteria(name))
    finally:
        rig.close()
    text = json.dumps(results(found, note, getattr(source, "HELD_BACK", ())), indent=1)
    (autograder / "results" / "results.json").write_text(text)
    print(f"secret {judge.SECRET}")  # for the instructor: with it cases are drawn again


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    elif sys.argv[1:] and sys.argv[1] in assignments.names():
        zipped = ROOT / "build" / "gradescope" / sys.argv[1] / "autograder.zip"
        build(sys.argv[1], zipped)
        print(f"upload as an autograder: {from_here(zipped)}")
    else:
        sys.exit(f"say which assignment: A={' or A='.join(assignments.names())}")

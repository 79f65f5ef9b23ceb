"""An autograder for Gradescope: `make gradescope A=ring` builds its zip.

gradescope-autograders.readthedocs.io/en/latest/specs says what Gradescope wants: a zip
with setup.sh and run_autograder at its root, which comes to /autograder/source; the
submission in /autograder/submission, what is known of it in submission_metadata.json;
and results in /autograder/results/results.json.

    python -m classroom.extras.gradescope /autograder /opt/lab

is what run_autograder starts. In a container there are mostly no user namespaces, and
so no bubblewrap: then the container is the fence, and the programs run as a user who
can read neither hidden cases nor results.
"""

import json
import os
import pwd
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import nbformat

from classroom.engine import assignment as assignments
from classroom.engine import judge, runner, sandbox
from classroom.engine.assignment import LAB, Assignment, home, load, notebook
from classroom.engine.rig import Rig
from classroom.engine.submission import answers
from ddp_lab import ROOT

RECIPE = ROOT / "classroom" / "gradescope"
NEEDED = ["torch", "torchvision", "numpy", "nbformat", "psutil", "py-spy"]
STUDENT = "student"  # as setup.sh calls the user
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
    place = home(name)
    parts = {f"assignments/{name}": place / "assignments" / name}
    parts |= {n: LAB / n for n in ("engine", "extras", "assignments/beside")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(RECIPE.iterdir()):
            archive.write(file, file.name)  # with its mode: run_autograder is started
        archive.writestr("requirements.txt", requirements())
        for folder, source in parts.items():
            for file in sorted(source.glob("*.py")):
                if file.name != "mistakes.py":
                    archive.write(file, f"lab/classroom/{folder}/{file.name}")
        for module in ("__init__.py", "assignments/__init__.py"):
            archive.write(ROOT / "classroom" / module, f"lab/classroom/{module}")
        for file in sorted((ROOT / "ddp_lab").rglob("*.py")):
            archive.write(file, f"lab/{file.relative_to(ROOT)}")
        cells = nbformat.read(notebook("source", name), as_version=4)
        cells.cells = [cell for cell in cells.cells if _grades(cell)]
        text = nbformat.writes(cells)
        archive.writestr(f"lab/classroom/source/{name}/{name}.ipynb", text)


def _grades(cell: nbformat.NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def requirements() -> str:
    """Return what pip shall install: the torch that is here, and what goes with it."""
    torch, *others = NEEDED
    return "\n".join([f"{torch}=={version(torch).split('+')[0]}", *others, ""])


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
        self.lab = lab

    def _execute(
        self, header: dict, files: dict[str, bytes]
    ) -> tuple[dict, dict[str, bytes]]:
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


def rig(source: Assignment, programs: Mapping[str, str], lab: Path) -> Rig:
    """Return a rig behind the best fence that there is here."""
    if sandbox.available() is None:
        return sandbox.Sandbox(source, programs)
    try:
        pwd.getpwnam(STUDENT)
    except KeyError:
        print("no bubblewrap and no user student: nothing but the container fences")
        return Rig(source, programs)
    return OtherUser(source, programs, lab)


def submitted(folder: Path, name: str) -> Path:
    """Return the notebook that was handed in, whatever it is called, if it is one."""
    wanted = folder / f"{name}.ipynb"
    found = sorted(folder.rglob("*.ipynb"))
    return found[0] if len(found) == 1 else wanted


def results(report: judge.Report) -> dict:
    """Return a report as results.json has it.

    A criterion that is blocked has neither score nor status: a person grades it.
    """
    tests = []
    for name, found in report.criteria.items():
        test: dict = {"name": name, "max_score": found["points"]}
        test |= {"output": "\n".join(found["lines"]), "visibility": "visible"}
        if found["state"] == "blocked":
            test["name"] += " (could not be judged here)"
        else:
            passed = found["state"] == "pass"
            test["score"] = found["points"] if passed else 0.0
            test["status"] = "passed" if passed else "failed"
        tests.append(test)
    given: dict = {"score": report.score, "tests": tests}
    given |= {"execution_time": round(report.seconds), "visibility": "visible"}
    given["stdout_visibility"] = "hidden"  # it is for the instructor
    return given | ({"output": report.note} if report.note else {})


def main(autograder: Path, lab: Path) -> None:
    """Judge the submission in a folder laid out as Gradescope does."""
    start = time.monotonic()
    (name,) = assignments.names()
    source, cells = load(name), assignments.criteria(name)
    path = submitted(autograder / "submission", name)
    programs, note = answers(path, source.PROGRAMS)
    report = judge.Report(name, "", "", note, secret=judge.SECRET)
    fenced = rig(source, programs, lab)
    fenced.secret = judge.SECRET
    try:
        report.criteria = judge.try_all(fenced, cells)[0]
    finally:
        fenced.close()
    report.seconds = time.monotonic() - start
    text = json.dumps(results(report), indent=1)
    (autograder / "results" / "results.json").write_text(text)
    print(f"secret {judge.SECRET}")  # with which its cases can be drawn once more
    _compare_points(autograder / "submission_metadata.json", cells)


def _compare_points(path: Path, cells: list[assignments.Criterion]) -> None:
    """Tell the instructor if Gradescope expects another sum of points."""
    try:
        asked = float(json.loads(path.read_text())["assignment"]["total_points"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if asked != (ours := sum(cell.points for cell in cells)):
        print(f"Gradescope's assignment has {asked:g} points, the criteria {ours:g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

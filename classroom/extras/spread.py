"""Grading spread over the machines of a SLURM cluster.

`make grade A=ring SLURM="--ntasks=8 --cpus-per-task=8 --time=60"` starts this module
by srun, once for each task, in a folder that all machines share. Task k of n judges
every n-th submission, from the k-th on. Reports come back as files; a line on stdout
says which one is there. The gradebook is written by whoever has started it all: SQLite
is not for a shared folder.

srun takes its machines from the job that it is started in, or asks for some.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from classroom.engine import judge, sandbox
from classroom.engine.assignment import COURSE
from ddp_lab import ROOT
from ddp_lab.kit.slurm.step import clean

JUDGED = "judged:"  # begins what a task says of a submission
SEEN_WITHIN = 60.0  # seconds until a file of one machine is seen from another


def reports(
    assignment: str,
    names: Sequence[str],
    *,
    slurm: str,
    unsafe: bool,
    again: bool,
    only: Sequence[str],
) -> Iterator[tuple[judge.Report, str]]:
    """Yield reports as they come, and the machine of each; not all may come.

    Args:
        assignment: what was handed in.
        names: of students.
        slurm: srun's options.
        unsafe: as of `judge.judge`, like the rest.
        again: as there.
        only: as there.

    Raises:
        SystemExit: if there is no srun here.
    """
    folder = COURSE / "reports" / f"spread-{uuid.uuid4().hex[:8]}"
    asked = {
        "assignment": assignment,
        "names": [*names],
        "folder": str(folder),
        "options": {"unsafe": unsafe, "again": again, "only": [*only]},
        "secret": judge.SECRET,
    }
    words = ["srun", "--mpi=none", "--kill-on-bad-exit=0", *shlex.split(slurm)]
    words += [sys.executable, "-m", "classroom.extras.spread"]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
    except FileNotFoundError:
        raise SystemExit("SLURM=... needs srun, and there is none here") from None
    try:
        assert process.stdin and process.stdout
        folder.mkdir(parents=True)
        with process.stdin:
            process.stdin.write(json.dumps(asked) + "\n")
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word != JUDGED:
                print(line, end="", flush=True)  # whatever else there is to say
                continue
            node, _, student = rest.partition(" ")
            if report := _arrived(folder / f"{student}.json"):
                yield report, node
    finally:
        process.terminate()  # srun ends its tasks
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _arrived(path: Path) -> judge.Report | None:
    """Return a report as soon as it is here; None if it does not come."""
    end = time.monotonic() + SEEN_WITHIN
    while time.monotonic() < end:
        if report := judge.read(path):
            return report
        time.sleep(0.2)
    return None


def main() -> None:
    """Judge the submissions of this task, and say of each that its report is there."""
    asked = json.loads(sys.stdin.readline())
    task, tasks = (int(os.environ[f"SLURM_{name}"]) for name in ("PROCID", "NTASKS"))
    node = os.environ.get("SLURMD_NODENAME", "?")
    kept = clean(os.environ)  # the programs shall not take the job for theirs
    os.environ.clear()
    os.environ.update(kept)
    options = asked["options"]
    if not options["unsafe"] and (trouble := sandbox.available()):
        sys.exit(f"{node}: {trouble}")
    mine = asked["names"][task::tasks]
    options["secret"] = asked["secret"]
    for report in judge.judge_all(asked["assignment"], mine, **options):
        judge.write(Path(asked["folder"], f"{report.student}.json"), report)
        print(JUDGED, node, report.student, flush=True)


if __name__ == "__main__":
    main()

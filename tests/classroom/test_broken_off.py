"""A grading that is killed leaves nothing, and goes on where it was broken off."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import psutil
import pytest
from course import as_notebook, changed
from support import FULL, wait_until, words_of
from test_course import Course

from classroom.engine import groups, sandbox

pytest.importorskip("nbgrader", reason="the lessons do without it")
pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        sandbox.available() is not None, reason="there is no sandbox here"
    ),
]
KEPT = "right: pass, and never judged anew"
# The second criterion does not end by itself.
HANGS = changed(
    "ring",
    (
        "    b = bounds",
        "    import time\n    time.sleep(10_000 * (len(x) == 10))\n    b = bounds",
    ),
)


@pytest.fixture
def temporary():
    """Return a folder with a short name: a socket's path is a short one."""
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        yield Path(folder)


@FULL
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_what_is_broken_off_leaves_no_process_and_goes_on(name, tmp_path, temporary):
    course = Course(tmp_path)
    course.hand_in("anna", nbformat.writes(as_notebook("ring", HANGS)))
    report = course.classroom / "reports" / "ring" / "anna.json"
    words = [sys.executable, "-m", "classroom.engine", "grade", "ring"]
    env = os.environ | {"PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)}
    judge = subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE)
    family = psutil.Process(judge.pid)

    def ranks() -> int:
        found = map(words_of, family.children(recursive=True))
        return sum("/run/case/harness.py" in words for words in found)

    def left() -> list:
        return [p for p in alive if p.is_running()]

    def groups_left() -> list:
        return [g for h in groups.homes() for g in h.glob(f"*-{judge.pid}-*")]

    try:
        # The first criterion is saved, and ranks of the second are there.
        assert wait_until(lambda: report.exists() and ranks() >= 3, 300)
        alive = family.children(recursive=True)
        saved = json.loads(report.read_text())
        assert [*saved["criteria"]] == ["right"] and left() and groups_left()
        judge.send_signal(getattr(signal, name))
        _, said = judge.communicate()
    finally:
        judge.kill()
        judge.wait()
    # Nothing was judged by its being broken off.
    assert json.loads(report.read_text()) == saved
    if name == "SIGINT":
        assert said.startswith(b"broken off; what has been judged is saved"), said
    assert wait_until(lambda: not left()), left()

    saved["criteria"]["right"]["lines"] = [KEPT]
    report.write_text(json.dumps(saved))
    done = course.run("grade", "ring", TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    right, other = json.loads(report.read_text())["criteria"].values()
    assert right["lines"] == [KEPT]
    assert other["state"] == "fail" and "no end after" in other["lines"][0]
    assert not groups_left()  # which the next judge has removed

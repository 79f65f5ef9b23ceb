"""The README: its commands run, and tell the ranks and lines that it shows."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import launched
import pytest
from support import HOUSE, wait_until

import whichrank
from whichrank.terminal import follow
from whichrank.terminal.main import main

README = (HOUSE / "README.md").read_text()
SHOWN = re.findall(r"```console\n\$ whichrank (.*)\n((?s:.*?))```", README)


def essence(output: str) -> list[tuple[str, list[str]]]:
    """Return of each line that counts who it speaks of, and the places in it."""
    counts = re.compile(r" *(rank \d+(?=:)|at\b|✗)(.*)")
    lines = map(counts.match, output.split("\n"))
    return [(m[1], re.findall(r"\w+\.py:\d+", m[2])) for m in lines if m]


@pytest.mark.processes
@pytest.mark.parametrize("command, output", SHOWN, ids=[words for words, _ in SHOWN])
def test_a_command_tells_what_is_shown(command, output, capfd, monkeypatch):
    monkeypatch.setitem(follow.LAUNCHERS, "torchrun", launched.torchrun)
    assert main(shlex.split(command)) in (1, follow.TIMED_OUT)
    seen = capfd.readouterr()
    assert essence(output) and essence(seen.out + seen.err) == essence(output)


@pytest.mark.processes
def test_a_job_that_hangs_already_is_explained_in_the_same_words(tmp_path, capfd):
    (_, output), *_ = SHOWN
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += ["--nproc-per-node", "2", "bench/faults/lock.py"]
    with open(tmp_path / "out", "wb") as out:
        job = subprocess.Popen(words, stdout=out, stderr=out)
        try:
            assert wait_until(lambda: b"step 3" in (tmp_path / "out").read_bytes(), 60)
            assert main(["why", str(job.pid), "--seconds", "2"]) == 0
        finally:
            job.terminate()
            job.wait()
    told = [(who, set(at)) for who, at in essence(capfd.readouterr().out)]
    assert told == [(who, set(at)) for who, at in essence(output)]


def test_the_table_is_the_measured_one():
    table = (HOUSE / "bench" / "table.md").read_text()
    assert table in README and len(table.splitlines()) > 12


def test_names_of_the_face_are_there():
    for name in re.findall(r"whichrank\.([A-Za-z_]\w+)\b(?=[(.]| as)", README):
        assert getattr(whichrank, name)


def test_files_that_are_linked_are_there():
    for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (HOUSE / page).read_text()):
            assert Path(HOUSE, link).exists(), f"{page}: {link}"


def test_files_that_contributing_names_are_there():
    there = {path.name for path in HOUSE.rglob("*.py")}
    named = set(re.findall(r"(\w+\.py)\b", (HOUSE / "CONTRIBUTING.md").read_text()))
    assert named - {"train.py"} <= there

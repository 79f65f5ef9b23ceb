"""Where there can be no sandbox, whoever grades is told how there can."""

import re
import shutil
import subprocess
import sys

import pytest

from classroom.engine import remedy, sandbox
from ddp_lab import ROOT

pytestmark = pytest.mark.sandbox
SAID = "bwrap: setting up uid map: Permission denied"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function: given files of a machine by name, what is said there."""

    def said(**files: str) -> str:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return remedy.remedy(tmp_path)

    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/bwrap")
    return said


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"proc__sys__kernel__apparmor_restrict_unprivileged_userns": "1\n"},
            "extra-profiles/bwrap-userns-restrict",
        ),
        ({".dockerenv": ""}, "systempaths=unconfined"),
        ({"run__.containerenv": ""}, "unmask=ALL"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_obstacle_has_its_remedy(machine, files, words):
    assert words in machine(**files)


def test_the_dev_container_is_started_as_we_say():
    options = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    docker = remedy.IN_A_CONTAINER.partition("docker run")[2].partition("\n")[0]
    wanted = re.findall(r"--security-opt (\S+)", docker)
    assert len(wanted) == 3
    assert all(f'"--security-opt={option}"' in options for option in wanted)


def test_what_allows_it_is_no_obstacle(machine):
    switch = remedy.RESTRICTED.replace("/", "__")
    assert machine(**{switch: "0"}) == machine() == ""


def test_elsewhere_there_is_none(machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "made for Linux" in machine()


def test_the_refusal_says_what_to_do(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert sandbox.available() == f"{sandbox.REFUSAL}\n{remedy.INSTALL}"

    def refused(words, **options):
        return subprocess.CompletedProcess(words, 1, stdout="", stderr=f"{SAID}\n")

    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/bwrap")
    monkeypatch.setattr(subprocess, "run", refused)
    monkeypatch.setattr(remedy, "remedy", lambda: "do this")
    said = sandbox.available()
    assert said == f"{sandbox.REFUSAL}\nbubblewrap does not work here ({SAID})\ndo this"

"""`make gpus`, without an accelerator and on some that this machine plays."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import outside
from support import FULL

from ddp_lab import ROOT

ACCELERATOR = Path(__file__).parent / "accelerator"
# Where the devices have main memory, nothing is measured and no memory runs out.
ON_PLAYED = """
from pathlib import Path
from tools import gpus
gpus.FOLDER = Path({folder!r})
gpus.SHOWS_ONE["played"] = gpus.SHOWS_ONE["cuda"]
gpus.programs = lambda: [Path(f"ddp_lab/{{name}}.py") for name in {programs!r}]
for section in ("collectives", "memory", "step", "training", "prepare"):
    setattr(gpus, section, lambda *_: {{}})
gpus.main()
"""


@pytest.fixture
def gpus():
    """Return the module; it imports torch, which not every worker needs."""
    return importlib.import_module("tools.gpus")


def test_without_an_accelerator_it_says_so_in_one_sentence(gpus, monkeypatch, capsys):
    monkeypatch.setattr(gpus.torch.accelerator, "device_count", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        gpus.main()
    assert ended.value.code == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_a_section_is_done_once_and_a_page_ends_a_record(gpus, monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "FOLDER", tmp_path)
    first = gpus.Record("2_played")
    assert first.section("hello", lambda: [1]) == [1]
    assert first.section("fails", lambda: 1 / 0) == {}  # the others go on
    again = gpus.Record("2_played")
    assert again.folder == first.folder
    assert again.section("hello", lambda: 1 / 0) == [1]
    again.say(False, "hello", "rank 1\nline 7")
    again.end("2 × played")
    page = (first.folder / "page.txt").read_text()
    assert page == "2 × played\n0 ✓, 1 ✗\n\n✗ hello\n    rank 1\n    line 7\n"


def test_a_page_says_how_to_see_what_has_changed_since(gpus):
    for page in (ROOT / "recorded").glob("*/page.txt"):
        here = json.loads((page.parent / "machine.json").read_text())
        assert page.read_text().startswith(gpus.since(here["commit"]) or "?"), page


def test_programs_that_have_run_do_not_run_again(gpus, monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "torchrun", lambda command, timeout: ran.append(command))
    monkeypatch.setattr(gpus, "programs", lambda: [Path("ddp_lab/a/b.py")] * 2)
    ran: list[str] = []
    kept = tmp_path / "own.jsonl"
    kept.write_text(json.dumps(["p2p/ring", "rank 1 hangs"]) + "\n")
    monkeypatch.setattr(gpus, "programs", lambda: [Path("d/p2p/ring.py"), HELLO])
    assert gpus.run_all(2, 1, kept) == {"p2p/ring": "rank 1 hangs", "start/hello": ""}
    assert [command.split()[-1] for command in ran] == [str(HELLO)]


HELLO = Path("ddp_lab/start/hello.py")


def test_all_programs_count_gpus_as_the_copy_expects(gpus, monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "COPY", tmp_path / "copy")
    copied = gpus.copied_apart() / HELLO
    assert gpus.COUNTS not in copied.read_text()
    assert "NCCL_HOSTID" in copied.read_text()


@FULL
@pytest.mark.processes
def test_played_accelerators_are_proved_and_recorded(tmp_path):
    programs = ["start/hello", "ddp/basics", "ddp/single"]
    code = ON_PLAYED.format(folder=str(tmp_path), programs=programs)
    path = os.pathsep.join([str(ACCELERATOR), str(ROOT)])
    env = outside(PLAYED_ACCELERATORS="2", PYTHONPATH=path)
    ended = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 1, ended.stderr
    (folder,) = tmp_path.iterdir()
    page = (folder / "page.txt").read_text().splitlines()
    wrong = [line for line in page if line.startswith("✗")]
    # Gloo checks shapes. The recorder calls the wire's calls gloo's, in which a host
    # stands itself, so nobody is found who waits at the next line that reads a number.
    known = {"✗ rank 1 shapes", "✗ rank 1 skips", "✗ whichrank why"}
    assert set(wrong) <= known, "\n".join(page)
    assert any(line.startswith("✓ rank 1 joins: played:1") for line in page)
    assert "✓ ddp/basics, one device for all" in page

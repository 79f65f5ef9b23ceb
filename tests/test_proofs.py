"""A proof stands as long as nothing has changed that its verdict depends on."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import proofs
import pytest

PROGRAM = "print('right')"


def item(program: str) -> SimpleNamespace:
    """Return a test that is a proof, as pytest would have it."""

    def test():
        pass

    marks = [pytest.mark.proof(of=lambda name: [program]).mark]
    return SimpleNamespace(
        function=test,
        nodeid="tests/test_exercises.py::test[one]",
        callspec=SimpleNamespace(params={"name": "one"}),
        user_properties=[],
        marks=marks,
        add_marker=marks.append,
        get_closest_marker=lambda name: marks[0] if name == "proof" else None,
    )


@pytest.mark.parametrize(
    ("program", "where", "stands"),
    [
        (PROGRAM, proofs.here(), True),
        (PROGRAM + " ", proofs.here(), False),
        (PROGRAM, "torch 1.0, Python 2.7", False),
    ],
    ids=["as it was", "another program", "another torch"],
)
def test_a_proof_stands_while_nothing_changes(program, where, stands, monkeypatch):
    row = [proofs.digest(item(PROGRAM)), where]
    monkeypatch.setitem(proofs.STANDING, item(PROGRAM).nodeid, row)
    proofs.mark(now := item(program))
    assert ("proved" in now.marks) == stands


def test_what_nobody_has_proved_is_tried(monkeypatch):
    monkeypatch.delitem(proofs.STANDING, item(PROGRAM).nodeid, raising=False)
    proofs.mark(now := item(PROGRAM))
    assert "proved" not in now.marks


def test_what_fails_stands_no_more(monkeypatch):
    name, other = item(PROGRAM).nodeid, "torch 1.0, Python 2.7"
    monkeypatch.setitem(proofs.STANDING, name, ["of before", other])
    recorder = proofs.Recorder()
    recorder.all = {name: "of now"}
    assert recorder.standing() == {}
    recorder.passed = {name}
    assert recorder.standing() == {name: ["of now", proofs.here()]}
    recorder.all = {name: "of before"}
    assert recorder.standing() == {name: ["of before", *sorted([proofs.here(), other])]}


def test_a_program_is_read_with_what_it_imports():
    hooks, gpt = "ddp_lab/less/hooks.py", "ddp_lab/gpt.py"
    assert proofs.text(gpt) in proofs.text(hooks)
    assert proofs.text(hooks).startswith(Path(proofs.ROOT, hooks).read_text())


@pytest.mark.processes
def test_a_file_that_changes_changes_the_digest_of_all_but_others(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "tracked", proofs.tracked.__wrapped__)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "tests").mkdir()
    found = []
    for file, text in [("a", "1"), ("a", "2"), ("b", "2"), ("tests/c", "3")]:
        (tmp_path / file).write_text(text)
        found.append(proofs.all_but.__wrapped__("tests/"))
    assert len({*found}) == 3 and found[2] == found[3]


def test_what_cannot_be_read_stays_in_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(proofs, "FILE", tmp_path / "proofs.json")
    monkeypatch.setattr(pytest, "main", lambda *_: pytest.ExitCode.INTERRUPTED)
    assert proofs.main() == pytest.ExitCode.INTERRUPTED and not proofs.FILE.exists()


def test_a_pass_counts_for_the_texts_that_were_read(monkeypatch):
    recorder = proofs.Recorder()
    recorder.all = dict.fromkeys(("one", "other", "left a mess"), "of now")
    for name, texts in zip(recorder.all, ("of now", "of later", "of now"), strict=True):
        said = {"nodeid": name, "user_properties": [("proof", texts)]}
        ok = SimpleNamespace(when="call", passed=True, failed=False, **said)
        recorder.pytest_runtest_logreport(ok)
    mess = SimpleNamespace(when="teardown", passed=False, failed=True, **said)
    recorder.pytest_runtest_logreport(mess)
    assert recorder.passed == {"one"}

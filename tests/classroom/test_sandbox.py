"""Whoever grades is told, before it begins, of a limit that does not hold here."""

import sys

import pytest

from classroom.engine import sandbox

pytestmark = pytest.mark.sandbox

main = pytest.importorskip("classroom.engine.__main__")


@pytest.mark.parametrize(("user", "said"), [(0, [sandbox.WEAK]), (1000, [])])
def test_root_without_control_groups_is_told(user, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "CGROUPS", tmp_path / "none")
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: user)
    monkeypatch.setattr(sandbox, "available", lambda: None)
    monkeypatch.setattr(main, "students", lambda assignment: [])
    monkeypatch.setattr(sys, "argv", ["engine", "grade", "ring"])
    monkeypatch.setattr(main, "release", lambda assignment: None)
    with pytest.raises(SystemExit, match="nobody has handed in"):
        main.main()
    assert capsys.readouterr().out.splitlines() == said

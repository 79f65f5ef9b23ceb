"""Every program runs alone, from any folder, by plain torchrun, on 2, 3 and 4 ranks."""

import pytest
from conftest import PROGRAMS

from ddp_lab.kit import python, torchrun

# Small numbers where the default is a lesson's worth of work.
ARGUMENTS = {}
# Programs that start their ranks themselves.
STARTS_ITS_RANKS = {"ddp_spawn.py"}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_program_proves_its_truth(path, ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ARGUMENTS.get(path.name, "")
    if path.name in STARTS_ITS_RANKS:
        run = python(f"{path} --nproc {ranks} {arguments}")
    else:
        run = torchrun(f"--nproc-per-node {ranks} {path} {arguments}")
    assert len(run.lines) == ranks
    assert all(run.lines), "a rank said nothing"
    assert list(tmp_path.iterdir()) == [], "the program left something behind"

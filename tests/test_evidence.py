"""What the lab makes of runs that are kept in tests/evidence: no process is needed.

Each is explained anew, and judged twice: by what faults.py says that a reader needs,
and by the whole explanation that was kept, where it is a regression test.
"""

import json
import re
import signal
import sys

import pytest

from ddp_lab import ROOT
from ddp_lab.kit.explain.failure import find_failure
from ddp_lab.kit.explain.logs import TorchrunLog
from tests.faults import CASES, FAULTS
from tests.record_evidence import EVIDENCE, LOGS, Recording

IDS = [f"{fault.name}-{ranks}" for fault, ranks in CASES]


@pytest.mark.parametrize("fault, ranks", CASES, ids=IDS)
def test_a_kept_run_is_explained(fault, ranks, tmp_path):
    here = EVIDENCE / fault.name
    recording = Recording.load(fault, ranks)
    told = recording.explain(tmp_path, here)
    text = (here / recording.program).read_text()
    fault.judge(ranks, told.failure, told.exit_codes, told.notes, text)
    assert told.as_json(here) == json.loads((here / f"{ranks}.json").read_text())


def test_nothing_is_kept_that_no_fault_explains():
    kept = {path.name for path in EVIDENCE.iterdir()}
    assert kept == {fault.name for fault in FAULTS}
    for fault in FAULTS:
        found = {path.stem for path in (EVIDENCE / fault.name).glob("*.txt")}
        assert found == {str(ranks) for ranks in fault.ranks}


def test_what_is_kept_names_no_machine():
    size = 0
    for path in EVIDENCE.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        size += len(text)
        for place in (str(ROOT), sys.prefix, "/tmp/", "/home/", "0x7"):
            assert place not in text, (path, place)
    assert size < 1_000_000


def lay_out(fault, ranks, folder):
    """Write what is kept of a run to `folder`; return its log, and how it ended."""
    recording = Recording.load(fault, ranks)
    recording.explain(folder, EVIDENCE / fault.name)
    meta = json.loads(recording.files["meta.json"])
    log = LOGS[meta["log"]].read(folder)
    return log, (meta["code"], meta["stopped"], meta["limit"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_finding_a_failure_changes_nothing(fault, tmp_path):
    log, ending = lay_out(fault, fault.ranks[-1], tmp_path)
    before = repr(log)
    assert repr(find_failure(log, *ending)) == repr(find_failure(log, *ending))
    assert repr(log) == before


def test_explaining_needs_no_process():
    """Neither psutil nor subprocess comes in with the room, and nothing of the kit."""
    for path in (ROOT / "ddp_lab" / "kit" / "explain").glob("*.py"):
        imports = re.findall(r"^\s*(?:from|import) (\S+)", path.read_text(), re.M)
        assert not {"psutil", "subprocess", "multiprocessing"} & {*imports}, path
        inside = [name for name in imports if name.startswith("ddp_lab")]
        assert all(name.startswith("ddp_lab.kit.explain") for name in inside), path


REPORT = """
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 7)
"""


def left_behind(folder, ends: list[dict | None], stderr: str) -> TorchrunLog:
    """Return the log of ranks that have left nothing but these ends."""
    (folder / "err").write_text(stderr)
    for rank, end in enumerate(ends):
        rank_folder = folder / "run" / "attempt_0" / str(rank)
        rank_folder.mkdir(parents=True)
        if end:
            (rank_folder / "end.json").write_text(json.dumps(end))
    return TorchrunLog.read(folder)


@pytest.mark.parametrize("finished", [True, False])
def test_an_abort_counts_only_if_the_work_was_not_done(finished, tmp_path):
    done = {"code": 0, "left_group": True}
    log = left_behind(tmp_path, [done, done if finished else None], REPORT)
    failure, exit_codes = find_failure(log, 1, None, 0)
    assert exit_codes == [0, 0 if finished else -signal.SIGABRT]
    assert (failure is None) == finished

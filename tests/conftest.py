"""What the tests share: the folder, the programs, and a count of survivors."""

import time

import psutil
import pytest

from ddp_lab.kit import ROOT

PROGRAMS = sorted((ROOT / "ddp_lab").glob("[!_]*.py"))


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    """Work where the notebooks do."""
    monkeypatch.chdir(ROOT)


@pytest.fixture
def survivors(monkeypatch, request):
    """Return a function that counts the living processes that this test has started."""
    monkeypatch.setenv("DDP_LAB_TEST", request.node.nodeid)

    def count() -> int:
        found = 0
        for process in psutil.process_iter():
            try:
                running = process.status() != psutil.STATUS_ZOMBIE
                found += running and request.node.nodeid == process.environ().get(
                    "DDP_LAB_TEST"
                )
            except psutil.Error:
                continue
        return found

    return count


def wait_until(condition, seconds: float = 20) -> bool:
    """Return whether `condition()` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())

"""What the tests of both houses share: markers, the warm process, survivors.

pytest takes it as a plugin; see the two conftest.py.
"""

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import launched
import psutil
import pytest
from launched import WARM

from whichrank import Warm, environment
from whichrank.run import ports
from whichrank.run.channels import COLD_ONLY, LENT

HOUSE = Path(__file__).resolve().parents[1]
"""The folder of whichrank."""
SOURCE = HOUSE / "src" / "whichrank"
# What tests start finds the package, and the modules beside this file.
PATHS = [str(SOURCE.parent), str(HOUSE / "tests"), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))

FULL = pytest.mark.full
"""Of tests that take long, and of numbers of ranks that `make test` can do without."""
NEEDS = ("processes", "sandbox", "browser")  # markers; see pyproject.toml
# Of files in which each test needs one of these.
NEEDED = re.compile(rf"^pytestmark = (\[\s*)?pytest\.mark\.({'|'.join(NEEDS)})\b", re.M)

# Beside other tests, a second thread of torch mostly spins while it waits for a core.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A background shell starts us deaf to Ctrl-C, and so would be all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def words_of(process: psutil.Process) -> list[str]:
    """Return a process's command; [] if it has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def pytest_configure(config):
    """Let all workers of xdist use one warm process, and be forks of it."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        if python := WARM.lend(environment()):
            config.option.tx = [f"popen//python={python}"] * len(config.option.tx)


@pytest.hookimpl(optionalhook=True)  # a machine may have pytest without xdist
def pytest_xdist_auto_num_workers(config):
    """Say what `-n auto` means here: a test that waits costs no core."""
    return min(2 * (os.cpu_count() or 1), 12)


def pytest_ignore_collect(collection_path, config):
    """Leave out of `make check`, unread, a file that has nothing for it."""
    if config.getoption("markexpr") == "check" and collection_path.suffix == ".py":
        if NEEDED.search(collection_path.read_text()):
            return True
    return None


def pytest_collection_modifyitems(items):
    """Mark what `make check` runs."""
    for item in items:
        if not any(item.get_closest_marker(need) for need in (*NEEDS, "full")):
            item.add_marker("check")


@pytest.fixture(autouse=True)
def no_process_unless_marked(request, monkeypatch):
    """Refuse a launch in a test that does not say that it needs processes."""
    if not any(request.node.get_closest_marker(need) for need in NEEDS):
        start = subprocess.Popen.__init__

        def refuse(*args, **kwargs):
            # Whoever imports torch asks ldconfig where a library is.
            if sys._getframe(1).f_globals["__name__"] == "ctypes.util":
                return start(*args, **kwargs)
            raise AssertionError("mark this test: pytest.mark.processes")

        monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


@pytest.fixture
def survivors(monkeypatch, request):
    """Return a function that counts the living processes that this test has started."""
    mark = f"{request.node.nodeid} {os.getpid()}"  # it may run elsewhere as well
    monkeypatch.setenv("DDP_LAB_TEST", mark)

    def count() -> int:
        found = living(mark)
        if WARM.process:  # it belongs to no test
            found = [process for process in found if process.pid != WARM.process.pid]
        return len(found)

    return count


def living(mark: str) -> list[psutil.Process]:
    """Return the living processes that were started with DDP_LAB_TEST=`mark`."""
    found = []
    for process in psutil.process_iter():
        try:
            running = process.status() != psutil.STATUS_ZOMBIE
            if running and process.environ().get("DDP_LAB_TEST") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(condition, seconds: float = 20) -> bool:
    """Return whether `condition()` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


@pytest.fixture
def free_port() -> int:
    """Return a port at which nobody listens, for programs that insist on one."""
    return ports.free_port()


@pytest.fixture
def warm(monkeypatch):
    """Return a warm start of this test's own, used by all that it launches."""
    monkeypatch.delenv(COLD_ONLY, raising=False)
    monkeypatch.delenv(LENT, raising=False)
    fresh = Warm()
    monkeypatch.setattr(launched, "WARM", fresh)
    yield fresh
    fresh.stop()


class Later:
    """A module that is imported when it is first used.

    Each worker of xdist imports all files of tests, and torch takes seconds.
    """

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, name):
        if name.startswith("_"):  # pytest asks everything whether it is a test
            raise AttributeError(name)
        return getattr(importlib.import_module(self.name), name)

"""What imports torch elsewhere is in these tests a fork of their warm process.

    python forked.py SOCKET

This stands in for fork_server.py, which takes four seconds of a core to import torch.
What a warm process does, who ends it, and what its end does to others is the same of a
fork. A cold start may have a torchrun that is a fork, and ranks that are none.
"""

import os
import runpy
import sys
from pathlib import Path

from launched import WARM

REAL = str(Path(__file__).parents[1] / "src/whichrank/run/fork_server.py")
HOLDS_TORCH = "DDP_LAB_TEST_WARM"  # names what runs a program in a fork


def servers() -> None:
    """Let each warm process that this process starts from here on be a fork."""
    from whichrank.run import warm

    warm.FORK_SERVER = Path(__file__)


def let_servers_be_forks(monkeypatch) -> None:
    """Do so in this test; in processes that it starts, `servers` may be called."""

    from whichrank import environment
    from whichrank.run import warm

    if python := WARM.python(environment()):
        monkeypatch.setenv(HOLDS_TORCH, python)
        monkeypatch.setattr(warm, "FORK_SERVER", Path(__file__))


def torchruns() -> None:
    """Let torchrun be a fork in each cold start of this process."""
    from whichrank.run import here

    here.plain = lambda: os.environ[HOLDS_TORCH]


def let_torchrun_be_a_fork(monkeypatch) -> None:
    """Do so in this test; ranks of a cold start import torch if they need it."""

    from whichrank import environment
    from whichrank.run import here

    if python := WARM.python(environment()):
        monkeypatch.setattr(here, "plain", lambda: python)


def import_anew() -> None:
    """Find in PYTHONPATH what a Python that starts would find there, not in a fork."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = folders
    if any(Path(folder, "torchvision.py").exists() for folder in folders):
        del sys.modules["torchvision"]


if __name__ == "__main__":
    if REAL not in sys.argv:
        python = os.environ[HOLDS_TORCH]
        os.execv(python, [python, __file__, REAL, sys.argv[1]])
    import_anew()
    sys.argv = sys.argv[1:]
    runpy.run_path(REAL, run_name="__main__")

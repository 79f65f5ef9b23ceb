"""Where the tests of whichrank run."""

import os
from pathlib import Path

import pytest

pytest_plugins = ["support"]
HOUSE = Path(__file__).resolve().parents[1]
# What tests start finds the package, and the modules beside this file.
PATHS = [str(HOUSE / "src"), str(HOUSE / "tests"), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))


@pytest.fixture(autouse=True)
def in_house(monkeypatch):
    """Work in the folder of the package."""
    monkeypatch.chdir(HOUSE)

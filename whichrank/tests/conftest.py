"""Where the tests of whichrank run."""

from pathlib import Path

import pytest

pytest_plugins = ["support"]
HOUSE = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def in_house(monkeypatch):
    """Work in the folder of the package."""
    monkeypatch.chdir(HOUSE)

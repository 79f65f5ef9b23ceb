"""Write down what has been proved, so that `make test` need not prove it again.

    python -m tests.proofs

What a program refuses today it refuses tomorrow, and what two ranks find right stays
right, unless somebody changes the program, the mistake, the test, or the PyTorch below.
So do the pages of a book that is made of the same files.
A test that is such a proof has the marker `proof`, with a function that returns, for
the test's parameters, the texts on which its verdict depends. proofs.json keeps a
digest of these, and where the test has passed. As long as both are the same,
`make test` leaves it out; pytest by hand and `make test-all` leave nothing out.
"""

import hashlib
import inspect
import json
import platform
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "proofs.json"
EVERYWHERE = (
    "tests/ranks.py",
    "tests/in_turn.py",
    "ddp_lab/kit/cell/program.py",
    "ddp_lab/kit/cell/source.py",
    "ddp_lab/kit/cell/end.py",
    "ddp_lab/gpt.txt",
    "ddp_lab/data.py",
)
"""What programs are run by, made by, and trained on."""
STANDING: dict[str, list[str]] = json.loads(FILE.read_text()) if FILE.exists() else {}
"""By test, a digest of what it depends on, and where it has passed."""


@cache
def here() -> str:
    """Return what else a verdict depends on."""
    torch, python = version("torch").split(".")[:2], sys.version_info[:2]
    gpus = len([*Path("/dev").glob("nvidia[0-9]*")])
    machine = f"{sys.platform} on {platform.machine()}, {gpus} GPUs"
    return f"torch {'.'.join(torch)}, Python {python[0]}.{python[1]}, {machine}"


@cache
def text(path: Path | str) -> str:
    """Return a file, and what it imports of the lessons."""
    found = (ROOT / path).read_text()
    for module in re.findall(r"^from (ddp_lab\.(?!kit)[\w.]+) import", found, re.M):
        found += text(Path(*module.split(".")).with_suffix(".py"))
    return found


@cache
def tracked() -> list[str]:
    """Return the names of the repository's files; [] where there is no repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = b""
    with suppress(FileNotFoundError):  # where there is no git
        listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE).stdout
    names = sorted(filter(None, listed.decode().split("\0")))
    return [name for name in names if (ROOT / name).is_file()]


@cache
def all_but(pattern: str) -> str:
    """Return a digest of the repository's files, but those whose path matches."""
    found = hashlib.sha256()
    for name in tracked():
        if not re.match(pattern, name):
            found.update(f"{name}\0".encode() + (ROOT / name).read_bytes())
    return found.hexdigest()


source = cache(inspect.getsource)


def digest(item: pytest.Item) -> str:
    """Return a digest of all that the verdict of a proof depends on."""
    texts = item.get_closest_marker("proof").kwargs["of"]
    parts = [source(item.function), *map(text, EVERYWHERE)]
    parts += texts(**item.callspec.params if hasattr(item, "callspec") else {})
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def mark(item: pytest.Item) -> None:
    """Mark a proof that stands, and have its report tell what it would prove."""
    if item.get_closest_marker("proof"):
        now = digest(item)
        item.user_properties.append(("proof", now))
        known, *where = STANDING.get(item.nodeid, [""])
        if known == now and here() in where:
            item.add_marker("proved")


class Recorder:
    """Keeps the proofs that there are, and those that passed."""

    def __init__(self) -> None:
        self.all: dict[str, str] = {}
        self.passed: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self.all[item.nodeid] = dict(item.user_properties)["proof"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        now = dict(report.user_properties).get("proof")
        if report.when == "call" and report.passed and now == self.all[report.nodeid]:
            self.passed.add(report.nodeid)
        elif report.failed:
            self.passed.discard(report.nodeid)

    def standing(self) -> dict[str, list[str]]:
        """Return what stands now: a proof of other texts stands no more."""
        found = {}
        for name, now in sorted(self.all.items()):
            known, *where = STANDING.get(name, [""])
            places = {*where} if known == now else set()
            places |= {here()} if name in self.passed else set()
            if places:
                found[name] = [now, *sorted(places)]
        return found


def main() -> int:
    """Run the proofs that do not stand, and write down those that do now."""
    recorder = Recorder()
    which = "proof and not (full or browser or repeats)"
    if code := pytest.main(["-qq", "--collect-only", "-m", which, "tests"], [recorder]):
        return code  # else what could not be read would stand no more
    words = ["-p", "tests.early", "-n", "auto", "tests", "-m"]
    code = pytest.main([*words, f"{which} and not proved"], [recorder])
    rows = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in recorder.standing().items()]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code


if __name__ == "__main__":
    sys.exit(main())

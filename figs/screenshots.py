"""Take the screenshots of README.md: python -m figs.screenshots [NAME ...]

A lesson is executed up to the cells that are shown, in a temporary copy, with a
reader's guesses; launches before them are left out. The picture is of a cell with the
launch alone, and of some of the outputs. JupyterLab opens it in Chromium, in its light
theme. Do it on a quiet machine: what explains a hang needs time to look.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Error, sync_playwright

from ddp_lab import ROOT
from tools import course, notebooks, work
from whichrank import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
OPTIONS = "--no-browser --allow-root --ip=127.0.0.1 --IdentityProvider.token=".split()
SETTINGS = {"notebook-extension/tracker": {"codeCellConfig": {"lineWrap": True}}}


@dataclass(frozen=True)
class Shot:
    """What of a lesson is shown, and what its reader has guessed before."""

    lesson: str
    first: str
    """What the first cell begins with; its first line is shown."""
    last: str
    shown: tuple[str, ...]
    """Of the outputs from there on: what those that are shown begin with, as text."""
    guesses: dict[str, str]
    """What is written in the place of what stands in the lesson."""


SHOTS = {
    "lesson": Shot(
        "collectives",
        "run = %torchrun --nproc-per-node {nproc} ddp_lab/collectives/rooted.py",
        "from IPython.display import display",
        ("$ torchrun", "[rank 0]", "after broadcast", "after scatter", "scatter from"),
        {
            'after broadcast, rank 1 holds (a list)", None': "after broadcast, rank 1 "
            'holds (a list)", [0, 1, 2, 3]',
            'after scatter, rank 1 holds (a list)", None': "after scatter, rank 1 "
            'holds (a list)", [0, 10, 20, 30]',
        },
    ),
    "hang": Shot(
        "when_it_hangs",
        "run_2 = %torchrun",
        "run_2 = %torchrun",
        ("$ torchrun", "[rank 0]"),
        {
            "rank=None, line=None, sym": "rank=0, line='dist.reduce', sym",
            "=None)": "='busy')",
        },
    ),
    "examine": Shot(
        "your_script",
        "%examine --nproc-per-node {nproc} ddp_lab/script/sampled.py",
        "%examine --nproc-per-node {nproc} ddp_lab/script/sampled.py",
        ("examined:",),
        {},
    ),
}


def executed(shot: Shot, folder: Path) -> Path:
    """Execute a learner's copy in `folder`, leave what is shown of it; return it."""
    work.make(folder)
    lesson = course.NAMED[shot.lesson]
    path = folder / "notebooks" / course.file(lesson)
    book = notebooks.read(path)
    begin = [cell.source.startswith((shot.first, shot.last)) for cell in book.cells]
    first = begin.index(True)
    last = first + begin[first:].index(True, int(shot.first != shot.last))
    book.cells = book.cells[: last + 1]
    for cell in book.cells[:first]:
        if "%torchrun" in cell.source:
            cell.source = ""
    for old, new in shot.guesses.items():
        cell = next(cell for cell in book.cells if old in cell.source)
        cell.source = cell.source.replace(old, new)
    notebooks.client(book, path.parent, allow_errors=True).execute()
    outputs = [out for cell in book.cells[first:] for out in cell.get("outputs", [])]
    book.cells = [book.cells[first]]
    book.cells[0].source = book.cells[0].source.partition("\n")[0]
    book.cells[0].outputs = [
        out
        for out in outputs
        if (out.get("data", out).get("text/plain") or out.get("text", "")).startswith(
            shot.shown
        )
    ]
    path.write_text(notebooks.dumps(book))
    return path


@contextmanager
def server(home: Path) -> Iterator[str]:
    """Run a JupyterLab that serves home/work; yield its address."""
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    port = free_port()
    options = [*OPTIONS, f"--port={port}", f"--ServerApp.root_dir={home / 'work'}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        env=os.environ | {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings")},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/doc/tree"
    finally:
        process.terminate()
        process.wait()


def take(name: str) -> None:
    """Write figs/NAME.png."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as driver:
        path = executed(SHOTS[name], Path(home) / "work")
        with server(Path(home)) as address:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page()
            page.set_viewport_size({"width": 860, "height": 3000})
            page.goto("about:blank")
            for _ in range(60):  # until the server answers
                with suppress(Error):
                    page.goto(f"{address}/notebooks/{path.name}")
                    break
                time.sleep(1)
            cell = page.locator(".jp-Cell")
            cell.wait_for(timeout=60_000)
            page.add_style_tag(content=".jp-Collapser {visibility: hidden}")
            time.sleep(10)  # for fonts and pictures
            cell.screenshot(path=ROOT / "figs" / f"{name}.png")


if __name__ == "__main__":
    for name in sys.argv[1:] or SHOTS:
        take(name)

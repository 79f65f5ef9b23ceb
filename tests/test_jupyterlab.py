"""A real JupyterLab in a real browser: read, stop, restart, close."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pytest
from conftest import Cell, living, wait_until
from jupyter_client import BlockingKernelClient

from ddp_lab import ROOT

pytestmark = pytest.mark.browser

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
QUIET = [*FLAGS, "--disable-background-networking", "--disable-component-update"]
SCREENSHOT = ROOT / "build" / "screenshots" / "jupyterlab.png"
BROWSER_WAIT = 40_000  # milliseconds for what a busy machine does in five seconds
MARK = f"jupyterlab-{os.getpid()}"
SETTINGS = {  # no questions and no news, and cells off screen exist as well
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}

GOOD = "import os\nprint(f\"[rank {os.environ['RANK']}] all is well\", flush=True)\n"
HANGING = """
import os, time
def wait_for_ever():
    print(f"[rank {os.environ['RANK']}] now I wait", flush=True)
    time.sleep(600)
wait_for_ever()
"""
# Both on one line: a browser joins them, so no other rank may come in between.
STOOD = r"rank {}\b((?!rank \d).)*hanging\.py:5\b((?!rank \d).)*time\.sleep\(600\)"


@pytest.fixture
def notebook(tmp_path):
    """A folder to serve: a small notebook, a good program and a hanging one."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "good.py").write_text(GOOD)
    (folder / "hanging.py").write_text(HANGING)
    cells = [
        "%load_ext ddp_lab",
        f"run = %torchrun --nproc-per-node 2 {folder}/good.py",
        f"run = %torchrun --nproc-per-node 2 {folder}/hanging.py",
        f"%torchrun --nproc-per-node 2 {folder}/hanging.py",
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    head = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    document = {
        "cells": [head | {"id": f"cell{i}", "source": s} for i, s in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = folder / "small.ipynb"
    path.write_text(json.dumps(document))
    return path


class Server:
    """A JupyterLab on a free port, with no settings but its own."""

    def __init__(self, tmp_path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.home = tmp_path / "home"
        for name, values in SETTINGS.items():
            plugin = self.home / "settings" / "@jupyterlab"
            file = plugin / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        folders = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
        env = {f"JUPYTER_{name}": str(self.home / name.lower()) for name in folders}
        env |= {
            "JUPYTERLAB_SETTINGS_DIR": str(self.home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "workspaces"),
            "IPYTHONDIR": str(self.home / "ipython"),
            "PYTHONPATH": str(ROOT),
            "DDP_LAB_TEST": MARK,
            "JUPYTER_TOKEN": "secret",
        }
        options = ["--no-browser", "--allow-root", "--ip=127.0.0.1"]
        options += [
            f"--port={self.url.rpartition(':')[2]}",
            "--ServerApp.port_retries=0",
        ]
        options += [f"--ServerApp.root_dir={tmp_path / 'work'}", "--LabApp.news_url="]
        self.log = open(tmp_path / "jupyter.log", "w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env=os.environ | env,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ask(self, path: str, data: bytes | None = None):
        """Return what the server's interface for programs answers."""
        headers = {"Authorization": "token secret"}
        request = urllib.request.Request(f"{self.url}/api/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        assert self.process.poll() is None, f"jupyter has ended, see {self.log.name}"
        try:
            return bool(self.ask("status"))
        except OSError:
            return False

    def close(self, *signals: int) -> None:
        """Send the signals, a moment apart, and wait for the end."""
        for number in signals:
            if self.process.poll() is None:
                self.process.send_signal(number)
                time.sleep(0.3)  # the second Ctrl-C of a person
        self.process.wait(30)


@pytest.fixture
def server(notebook, tmp_path):
    """A running JupyterLab; whatever a failing test leaves of it is killed."""
    server = Server(tmp_path)
    try:
        assert wait_until(server.answers, 60)
        yield server
    finally:
        for process in [server.process, *living(MARK)]:
            process.kill()
        server.process.wait()
        server.log.close()


@contextmanager
def page_of(server, notebook):
    """Open the notebook, a path in the served folder, in a browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs a Chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(BROWSER_WAIT)
        page.goto(f"{server.url}/doc/tree/{notebook}?token=secret")
        wait_for_kernel(page)
        try:
            yield page
        except BaseException:
            page.screenshot(path=SCREENSHOT.with_name("failed.png"), full_page=True)
            raise
        browser.close()


def wait_for_kernel(page) -> None:
    page.wait_for_selector('.jp-Toolbar-kernelName:has-text("Python 3")')
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]')


def run_all(page) -> None:
    page.click('.lm-MenuBar-item:has-text("Run")')
    page.click('.lm-Menu-item[data-command="runmenu:run-all"]')


def press(page, button: str) -> None:
    page.click(f'.jp-NotebookPanel-toolbar [data-jp-item-name="{button}"] jp-button')


def wait_for_output(page, cell: int, *patterns: str) -> None:
    """Wait until a reader can see each of `patterns` below the cell."""
    output = page.locator(".jp-CodeCell").nth(cell).locator(".jp-Cell-outputArea")
    for pattern in patterns:
        shown = output.filter(has_text=re.compile(pattern), visible=True)
        shown.wait_for(state="visible")


def both(pattern: str) -> list[str]:
    return [pattern.format(rank) for rank in range(2)]


def test_the_stop_and_restart_buttons_do_what_they_say(notebook, server):
    with page_of(server, notebook.name) as page:
        before = living(MARK)  # the server and an idle kernel
        run_all(page)
        wait_for_output(page, 1, *both(r"\[rank {}\] all is well"))
        wait_for_output(page, 2, *both(r"\[rank {}\] now I wait"))
        assert len(living(MARK)) >= len(before) + 4
        press(page, "interrupt")
        wait_for_output(page, 2, *both(STOOD))
        wait_for_kernel(page)
        SCREENSHOT.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOT)
        assert wait_until(lambda: len(living(MARK)) <= len(before) + 1), living(MARK)

        page.click(".jp-CodeCell >> nth=3 >> .jp-InputArea-editor")
        press(page, "run")
        wait_for_output(page, 3, *both(r"\[rank {}\] now I wait"))
        started = [p for p in living(MARK) if p.pid != server.process.pid]
        press(page, "restart")
        page.click(".jp-Dialog .jp-mod-accept")
        wait_for_kernel(page)
        gone = wait_until(lambda: not set(started) & set(living(MARK)))
        assert gone, living(MARK)


IMAGES = """images => images.map(image => [image.naturalWidth, image.alt])"""
KINDS = """outputs => outputs.map(output => output.dataset.mimeType)"""


def shown_kind(output: dict) -> str:
    """Return the form in which a reader should see a stored output."""
    if output["output_type"] == "stream":
        return f"application/vnd.jupyter.{output['name']}"
    pictures = ("text/html", "text/markdown", "image/png", "image/jpeg")
    return next((kind for kind in pictures if kind in output["data"]), "text/plain")


def look_for_pictures(page, document: dict, name: str) -> None:
    """Assert that a page shows all outputs of a notebook, and each picture in words."""
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    kinds = [shown_kind(output) for cell in code for output in cell["outputs"]]
    outputs = page.locator(".jp-OutputArea-output")
    assert wait_until(lambda: outputs.count() == len(kinds)), name
    assert outputs.evaluate_all(KINDS) == kinds, name
    images = page.locator(".jp-Notebook img")
    assert wait_until(lambda: all(w for w, _ in images.evaluate_all(IMAGES))), name
    assert all(alt for _, alt in images.evaluate_all(IMAGES)), name
    text = page.locator(".jp-Notebook").inner_text()
    assert "<svg" not in text and "Before: rank" not in text, name


def test_a_fresh_clone_shows_every_picture_before_anything_runs(notebook, server):
    folder = notebook.parent
    for name in ("notebooks", "figs"):
        shutil.copytree(ROOT / name, folder / name, ignore=lambda *_: ["build"])
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        with page_of(server, path.relative_to(folder)) as page:
            look_for_pictures(page, json.loads(path.read_text()), path.name)


def ready(client) -> bool:
    """Wait until the kernel answers; False if it is so slow that it seems dead."""
    try:
        client.wait_for_ready(timeout=60)
    except RuntimeError:  # no heartbeat for a second
        return False
    return True


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT] * 2])
def test_no_run_outlives_the_server(notebook, server, signals):
    kernel = server.ask("kernels", json.dumps({"name": "python3"}).encode())
    file = server.home / "runtime_dir" / f"kernel-{kernel['id']}.json"
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    try:
        assert wait_until(lambda: ready(client), 60)
        launch = f"%torchrun --nproc-per-node 2 {notebook.parent}/hanging.py"
        cell = Cell(client, f"%load_ext ddp_lab\n{launch}")
        cell.wait_for("[rank 0] now I wait", "[rank 1] now I wait")
    finally:
        client.stop_channels()
    assert len(living(MARK)) >= 6  # the server, the kernel, the guard, torchrun, ranks
    server.close(*signals)
    assert wait_until(lambda: living(MARK) == []), living(MARK)

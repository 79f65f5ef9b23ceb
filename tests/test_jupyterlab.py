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
from conftest import Cell, install, make, outside
from jupyter_client import BlockingKernelClient
from support import living, wait_until

from ddp_lab import ROOT

pytestmark = pytest.mark.browser

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
QUIET = [*FLAGS, "--disable-background-networking", "--disable-component-update"]
SCREENSHOT = ROOT / "build" / "screenshots" / "jupyterlab.png"
BROWSER_WAIT = 120_000  # milliseconds for what an idle machine does in five seconds
MARK = f"jupyterlab-{os.getpid()}"
SETTINGS = {  # cells off screen exist as well
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
    """A JupyterLab on a free port, started by `command`, with settings of its own."""

    def __init__(self, tmp_path, command, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.home = tmp_path / "home"
        for name, values in SETTINGS.items():
            self.write(f"settings/@jupyterlab/{name}.jupyterlab-settings", values)
        address = {"ip": "127.0.0.1", "port": port, "port_retries": 0}
        quiet = {"open_browser": False, "allow_root": True}
        self.write(
            "config_dir/jupyter_server_config.json", {"ServerApp": address | quiet}
        )
        folders = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
        env = {f"JUPYTER_{name}": str(self.home / name.lower()) for name in folders}
        env |= {
            "JUPYTERLAB_SETTINGS_DIR": str(self.home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "workspaces"),
            "IPYTHONDIR": str(self.home / "ipython"),
            "DDP_LAB_TEST": MARK,
            "JUPYTER_TOKEN": "secret",
        }
        self.log = open(tmp_path / "jupyter.log", "w")
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=outside(**env),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def write(self, name: str, values: dict) -> None:
        """Write a file of settings."""
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))

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


@contextmanager
def serving(tmp_path, command, folder):
    """Start a JupyterLab; whatever a failing test leaves of it is killed."""
    server = Server(tmp_path, command, folder)
    try:
        assert wait_until(server.answers, 60)
        yield server
    finally:
        for process in [server.process, *living(MARK)]:
            process.kill()
        server.process.wait()
        server.log.close()


@pytest.fixture
def server(notebook, tmp_path):
    """A JupyterLab in the notebook's folder."""
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "jupyterlab"]
    command.append(f"--ServerApp.root_dir={notebook.parent}")
    with serving(tmp_path, command, ROOT) as server:
        yield server


@contextmanager
def browser():
    """Open an empty page in a browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs a Chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = chromium.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(BROWSER_WAIT)
        try:
            yield page
        except BaseException:
            SCREENSHOT.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOT.with_name("failed.png"), full_page=True)
            raise
        chromium.close()


@contextmanager
def page_of(server, notebook):
    """Open the notebook, a path in the served folder, in a browser."""
    with browser() as page:
        page.goto(f"{server.url}/doc/tree/{notebook}?token=secret")
        wait_for_kernel(page)
        yield page


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
SHOWN = "img:not(.cm-widgetBuffer)"  # those are in an editor
KINDS = """outputs => outputs.map(output => output.dataset.mimeType)"""


def shown_kind(output: dict) -> str:
    """Return the form in which a reader should see a stored output."""
    if output["output_type"] == "stream":
        return f"application/vnd.jupyter.{output['name']}"
    pictures = ("text/html", "text/markdown", "image/png", "image/jpeg")
    return next((kind for kind in pictures if kind in output["data"]), "text/plain")


def look_for_pictures(page, server, folder, name: str) -> None:
    """Assert that a page shows all outputs of a notebook, and each picture in words."""
    page.goto(f"{server.url}/doc/tree/{name}?token=secret")
    cells = json.loads((folder / name).read_text())["cells"]
    kinds = [shown_kind(o) for cell in cells for o in cell.get("outputs", [])]
    prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    drawings = len(re.findall(r"!\[|<img\b", "\n".join(prose)))
    page.wait_for_selector(".jp-Notebook .jp-MarkdownOutput")
    outputs = page.locator(".jp-OutputArea-output")
    assert wait_until(lambda: outputs.count() == len(kinds), 60), name
    assert outputs.evaluate_all(KINDS) == kinds, name
    images = page.locator(f".jp-MarkdownCell {SHOWN}")
    assert wait_until(lambda: images.count() == drawings, 60), name
    images = page.locator(f".jp-Notebook {SHOWN}")
    assert wait_until(lambda: all(w for w, _ in images.evaluate_all(IMAGES))), name
    assert all(alt for _, alt in images.evaluate_all(IMAGES)), name
    text = page.locator(".jp-Notebook").inner_text()
    assert "<svg" not in text and "Before: rank" not in text, name


def lessons(folder) -> list[str]:
    """Return the names of the lessons in `folder`."""
    return sorted(f"notebooks/{path.name}" for path in folder.glob("notebooks/*.ipynb"))


def test_a_fresh_clone_shows_every_picture_before_anything_runs(clone, tmp_path):
    command = [".venv/bin/jupyter", "lab"]
    with serving(tmp_path, command, clone) as server, browser() as page:
        for name in lessons(clone):
            look_for_pictures(page, server, clone, name)


def follow(page, server, folder, path: str) -> None:
    """Click a link to `path` in the first lesson that has one, and see it open."""
    name = next(
        n for n in lessons(folder) if f"](../{path}" in (folder / n).read_text()
    )
    page.goto(f"{server.url}/lab/tree/{name}?reset&token=secret")
    wait_for_kernel(page)  # until then a link may not know of JupyterLab
    page.click(f'.jp-Notebook a[href*="/files/{path}"]')
    page.wait_for_url(f"**/lab/tree/{path}*")
    page.wait_for_selector(".jp-MarkdownViewer h1")
    if path == "README.md":
        heading = page.locator(".jp-MarkdownViewer h2", has_text="The lessons")
        assert wait_until(lambda: heading.bounding_box()["y"] < 500)
    images = page.locator(".jp-MarkdownViewer img")
    assert wait_until(lambda: all(w for w, _ in images.evaluate_all(IMAGES))), path


def test_make_open_shows_every_picture_and_page(clone, tmp_path):
    work = clone / "work"
    (work / "figs").mkdir(parents=True)  # which a person has made
    (work / "README.md").symlink_to("../README.md")  # of an earlier edition
    with serving(tmp_path, ["make", "open"], clone) as server, browser() as page:
        assert lessons(work) == lessons(clone)
        for name in lessons(work):
            look_for_pictures(page, server, work, name)
        assert page.locator(".Toastify__toast").count() == 0  # over the first output
        for path in ("README.md", "TROUBLESHOOTING.md", "classroom/README.md"):
            follow(page, server, work, path)


@pytest.fixture
def handed_out(clone, tmp_path):
    """Return the folder that a student has unpacked, as after `make setup`."""
    pytest.importorskip("nbgrader", reason="the lessons do without it")
    for words in (["release", "A=ring"], ["handout"]):
        done = make(clone, *words)
        assert done.returncode == 0, done.stdout
    shutil.unpack_archive(
        clone / "build" / "handout" / "ddp-lab-students.zip", tmp_path
    )
    return install(tmp_path / "ddp-lab")


def test_make_open_shows_a_student_lessons_and_assignment(handed_out, tmp_path):
    work, ring = handed_out / "work", "assignments/ring/ring.ipynb"
    command = ["make", "open"]
    with serving(tmp_path, command, handed_out) as server, browser() as page:
        first, *_ = lessons(work)
        assert lessons(work) == lessons(handed_out)
        look_for_pictures(page, server, work, first)
        follow(page, server, work, "README.md")
        page.goto(f"{server.url}/doc/tree/{ring}?token=secret")
        wait_for_kernel(page)
        run_all(page)
        drawing = page.locator(".jp-RenderedSVG img")
        drawing.nth(1).wait_for()
        assert all(width for width, _ in drawing.evaluate_all(IMAGES))
        page.locator(".jp-OutputArea-output", has_text="not yet").first.wait_for()
        assert (
            page.locator('.jp-OutputArea-output[data-mime-type*="error"]').count() == 0
        )


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

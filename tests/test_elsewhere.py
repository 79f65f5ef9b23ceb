"""The start cell for Colab and Kaggle, in a plain kernel, in a folder that is empty."""

import json
import re
import subprocess
import sysconfig
import venv

import pytest
from conftest import copied

pytest.importorskip("nbclient", reason="needs Jupyter")

from nbclient import NotebookClient  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

from ddp_lab import ROOT  # noqa: E402
from tools import course, notebooks  # noqa: E402

pytestmark = pytest.mark.processes

ADDRESS = "https://github.com/OWNER/ddp-lab.git"
WHERE = """
import ddp_lab
from importlib.util import find_spec
print(ddp_lab.__file__, "torch:", find_spec("torch").origin)
"""


def start_cell() -> str:
    """Return the cell that the page tells its reader to paste."""
    page = (ROOT / "ELSEWHERE.md").read_text()
    (cell,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    return cell


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Return the name of a kernel that has what is installed here, but not the lab.

    Its environment is new, and so empty that pip could spoil nothing; a .pth file shows
    it our packages, and leaves out what they put on the path, such as this repository.
    """
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.check_output([python, "-c", ask], text=True).strip()
    with open(f"{site}/ours.pth", "w") as file:
        file.write(sysconfig.get_path("purelib"))
    spec = tmp_path / "jupyter" / "kernels" / "elsewhere"
    spec.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    words = {"argv": argv, "display_name": "elsewhere", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(words))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # what is missing fails, and is not fetched
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return "elsewhere"


@pytest.fixture
def repository(tmp_path):
    """Return the address of a repository that holds the lab as it is now."""
    folder = copied(tmp_path / "ddp-lab")
    me = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["add", "."], [*me, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return f"file://{folder}"


def test_a_lesson_runs_where_nothing_is_installed(tmp_path, kernel, repository):
    code = [
        cell.source
        for cell in notebooks.read(course.PATH / course.file(course.LESSONS[0])).cells
        if cell.cell_type == "code"
    ]
    first = next(n for n, source in enumerate(code) if "%torchrun" in source)
    start = start_cell()
    assert ADDRESS in start and "nproc = 2 " in code[1]
    start = start.replace(ADDRESS, repository)
    sources = [start, start, *code[: first + 1], WHERE, "run.facts"]
    book = new_notebook(cells=[new_code_cell(source) for source in sources])
    empty = tmp_path / "empty"
    empty.mkdir()
    client = NotebookClient(
        book,
        kernel_name=kernel,
        timeout=180,
        resources={"metadata": {"path": str(empty)}},
    )
    client.execute()
    said = ["".join(out.get("text", "") for out in c.outputs) for c in book.cells]
    lab, torch = said[-2].split(" torch: ")
    assert lab.startswith(str(empty / "ddp-lab" / "ddp_lab"))
    assert not torch.startswith(str(tmp_path)), "torch was installed again"
    assert "No module" not in said[0] + said[1] and "ERROR" not in said[0] + said[1]
    print(said)
    facts = eval(book.cells[-1].outputs[0]["data"]["text/plain"])
    assert [fact["total"] for fact in facts] == [4950, 4950]

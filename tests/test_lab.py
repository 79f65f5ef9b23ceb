"""`make lab` and the cells of a notebook: a failing lesson, and what a cell shows."""

import re
import socket
import subprocess
import sys
import threading
from base64 import b64encode

import pytest
from support import wait_until

pytest.importorskip("papermill", reason="these tests need Jupyter")

import nbformat  # noqa: E402
from IPython.core.error import UsageError  # noqa: E402
from jupyter_client.connect import LocalPortCache  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.kit.cell import magics  # noqa: E402
from tools import lab, notebooks  # noqa: E402
from tools.compare import Difference, differences  # noqa: E402
from whichrank.run.channels import LENT  # noqa: E402

pytestmark = pytest.mark.processes

RANKS = (
    "import os\nprint('[rank', os.environ['RANK'] + '] of', os.environ['WORLD_SIZE'])"
)


def lesson(*sources: str):
    """Return a notebook that opens as every lesson does, and goes on with `sources`."""
    notebook = new_notebook(metadata={"kernelspec": notebooks.KERNELSPEC})
    notebook.cells = [
        new_code_cell("%load_ext ddp_lab"),
        new_code_cell("nproc = 2", metadata={"tags": ["parameters"]}),
        *map(new_code_cell, sources),
    ]
    return notebook


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "ranks.py"
    path.write_text(RANKS)
    return path


def run(notebook, **options):
    client = NotebookClient(
        notebook, extra_arguments=notebooks.KERNEL_ARGUMENTS, **options
    )
    return client.execute().cells[-1].outputs


def test_a_failing_lesson_stops_no_other(tmp_path, monkeypatch, capsys, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr(lab, "FOLDER", tmp_path / "build" / "lab")
    monkeypatch.setenv(LENT, "")  # or other tests would borrow what main() lends
    sick = lesson("x = 1", f"%torchrun --nproc-per-node {{nproc}} {tmp_path}/no.py")
    well = lesson(f"run = %torchrun --nproc-per-node {{nproc}} {program}")
    nbformat.write(sick, tmp_path / "01_sick.ipynb")
    nbformat.write(well, tmp_path / "02_well.ipynb")
    monkeypatch.setattr("sys.argv", ["lab", "--nproc", "3"])
    with pytest.raises(SystemExit) as end:
        lab.main()
    assert end.value.code == 1
    table = capsys.readouterr().out.split("result\n")[1].splitlines()
    assert (
        table[0].startswith("01_sick")
        and "failed at cell 5: RunFailed: there is no file" in table[0]
    )
    assert re.fullmatch(r"02_well +\d+ +3 +ok, outputs not compared", table[1])
    assert "[rank 2] of 3" in (lab.FOLDER / "02_well.html").read_text()
    assert "there is no file" in (lab.FOLDER / "01_sick.html").read_text()


PICTURE = """
from base64 import b64encode
from IPython.display import HTML
HTML(f'<img src="data:image/svg+xml;base64,{b64encode(b"<svg><g/></svg>").decode()}">')
"""


def test_a_cell_that_gives_something_else_is_told_beside_what_is_committed(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr(lab, "FOLDER", tmp_path / "build" / "lab")
    monkeypatch.setattr(lab, "unlike", lambda: "")
    monkeypatch.setattr("sys.argv", ["lab"])
    monkeypatch.setenv(LENT, "")
    path = tmp_path / "01_a.ipynb"
    times = new_code_cell("import time; time.time()")
    times.metadata["tags"] = ["nbval-ignore-output"]
    notebook = lesson("print('loss', 0.25)", "1 + 1", PICTURE)
    notebook.cells += [times, new_code_cell("# NBVAL_IGNORE_OUTPUT\nid(time)")]
    nbformat.write(notebook, path)
    notebooks.execute(path)

    with pytest.raises(SystemExit) as end:
        lab.main()
    assert end.value.code == 0 and re.search(r"01_a .* ok\n", capsys.readouterr().out)

    committed = notebooks.read(path)
    committed.cells[2].outputs[0].text = "loss 0.5\n"
    committed.cells[3].outputs.clear()
    html = committed.cells[4].outputs[0].data["text/html"]
    other = "data:image/svg+xml;base64," + b64encode(b"<svg><a/></svg>").decode()
    committed.cells[4].outputs[0].data["text/html"] = f'<img src="{other}">'
    assert html != f'<img src="{other}">'
    nbformat.write(committed, path)
    with pytest.raises(SystemExit) as end:
        lab.main()
    said = capsys.readouterr().out
    assert end.value.code == 1 and "differs at cells 3, 4, 5" in said
    assert "cell 3: print('loss', 0.25)" in said
    assert "-loss 0.5\n    +loss 0.25\n" in said
    assert "+2\n" in said
    assert "-<a/>\n    +<g/>\n" in said


def test_a_difference_of_blanks_is_seen():
    def text(got: str) -> str:
        return str(Difference(3, "print()", {"stdout": ["a\n"]}, {"stdout": [got]}))

    assert "\n    -a\n    +a " in text("a \n")
    assert "ends of lines alone" in text("a")


def test_nbval_finds_the_same_cells(tmp_path):
    """On its own as well: pytest --nbval notebooks/NN_subject.ipynb."""
    notebook = lesson("print('loss', 0.25)", "1 + 1", "import sys; print(sys.flags)")
    path = tmp_path / "01_a.ipynb"
    nbformat.write(notebook, path)
    notebooks.execute(path)
    executed, committed = notebooks.read(path), notebooks.read(path)
    committed.cells[2].outputs[0].text = "loss 0.5\n"
    committed.cells[3].outputs[0].data["text/plain"] = "3"
    nbformat.write(committed, path)
    ours = [each.number for each in differences(committed, executed)]
    options = ["-p", "no:cacheprovider", "--nbval", "--nbval-current-env", "-rf"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    said = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    theirs = re.findall(r"^FAILED .*::Cell (\d+)\b", said.stdout, re.M)
    assert ours == [3, 4] == [int(number) + 1 for number in theirs], said.stdout


def test_a_kernel_listens_at_no_port_that_another_process_was_given(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr(lab, "FOLDER", tmp_path / "build" / "lab")
    monkeypatch.setattr("sys.argv", ["lab"])
    monkeypatch.setenv(LENT, "")
    nbformat.write(lesson("x = 1"), tmp_path / "01_a.ipynb")
    with socket.create_server(("127.0.0.1", 0)) as another:
        taken = another.getsockname()[1]
        monkeypatch.setattr(LocalPortCache, "find_available_port", lambda *_: taken)
        notebooks.execute(tmp_path / "01_a.ipynb")
        with pytest.raises(SystemExit) as end:
            lab.main()
    assert end.value.code == 0


def test_the_links_of_a_page_lead_somewhere(tmp_path):
    links = "[a](../README.md#x), [b](02_collectives.ipynb), [c](https://a.org)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(links)])
    nbformat.write(notebook, tmp_path / "01_a.ipynb")
    lab.write_html(tmp_path / "01_a.ipynb", tmp_path)
    page = (tmp_path / "01_a.html").read_text()
    found = re.findall(r'<a href="([^"]+)">[abc]<', page)
    assert found == ["../../README.md#x", "02_collectives.html", "https://a.org"]


def test_lessons_run_side_by_side_and_say_how_far_they_are(
    tmp_path, monkeypatch, capsys
):
    """Each of two lessons waits for the other, so one at a time would never end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr(lab, "FOLDER", tmp_path / "build" / "lab")
    monkeypatch.setattr(lab.Progress, "EVERY", 0.0)
    monkeypatch.setenv(LENT, "")
    meet = """
import pathlib, time
pathlib.Path("{0}").touch()
for _ in range(1200):
    if pathlib.Path("{1}").exists():
        break
    time.sleep(0.05)
else:
    raise TimeoutError("the other lesson has not begun")
"""
    for number, other in (1, 2), (2, 1):
        path = tmp_path / f"0{number}_lesson.ipynb"
        there = [str(tmp_path / f"there{n}") for n in (number, other)]
        nbformat.write(lesson(meet.format(*there)), path)
    monkeypatch.setattr("sys.argv", ["lab", "--jobs", "2"])
    with pytest.raises(SystemExit) as end:
        lab.main()
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert re.search(r"0 of 2 done; at cell .*01: 3/3", said), said
    assert "[2/2] 0" in said and "in all" in said


@pytest.mark.parametrize("word", ["x", "0", "-1", "2.5"])
def test_a_number_of_ranks_that_is_none_is_refused_in_one_sentence(
    word, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["lab", f"--nproc={word}"])
    with pytest.raises(SystemExit) as end:
        lab.main()
    assert end.value.code == 2
    assert f"NPROC is a number from 1 to 64, as in NPROC=4, not {word!r}" in (
        capsys.readouterr().err
    )


def test_a_cell_that_measures_time_has_the_machine_for_itself():
    machine, order = lab.Machine(), []
    first_in, first_out = threading.Event(), threading.Event()

    def cell(name, alone, inside=None, leave=None):
        with machine.cell(alone):
            order.append(f"{name} in")
            if inside:
                inside.set()
            if leave:
                assert leave.wait(30)
            order.append(f"{name} out")

    first = threading.Thread(target=cell, args=("first", False, first_in, first_out))
    first.start()
    assert first_in.wait(30)
    measures = threading.Thread(target=cell, args=("measures", True))
    measures.start()
    assert wait_until(lambda: machine._queued == 1)
    late = threading.Thread(target=cell, args=("late", False))
    late.start()  # it comes while the machine is shared, and still has to wait
    first_out.set()
    for thread in (first, measures, late):
        thread.join(30)
    both = [[f"{name} in", f"{name} out"] for name in ("first", "measures", "late")]
    assert order == sum(both, [])


def test_an_unknown_lesson_is_refused_in_one_sentence():
    with pytest.raises(SystemExit, match="there is no lesson 77; there are 00"):
        notebooks.lessons(["77"])


def test_the_stored_output_is_the_command_and_the_ranks_in_order(program):
    outputs = run(lesson(f"run = %torchrun --nproc-per-node {{nproc}} {program}"))
    assert [output.output_type for output in outputs] == ["display_data"] * 2
    command, lines = (output.data["text/plain"] for output in outputs)
    assert command == f"$ torchrun --standalone --nproc-per-node 2 {program}"
    assert lines.splitlines()[:2] == ["[rank 0] of 2", "[rank 1] of 2"]


def test_a_run_is_shown_in_a_line(program):
    cell = f"run = %torchrun --nproc-per-node {{nproc}} {program}"
    (shown,) = run(lesson(cell, "run"))
    assert shown.data["text/plain"] == "<Run, 2 ranks, ok>"


def test_a_failing_cell_shows_the_cause_and_no_frames_of_the_launcher(program):
    program.write_text("import os\nassert os.environ['RANK'] == '0', 'not mine'")
    cell = f"run = %torchrun --nproc-per-node {{nproc}} {program}"
    *_, error = run(lesson(cell), allow_errors=True)
    text = "\n".join(error.traceback)
    assert text.startswith("RunFailed: rank 1: AssertionError: not mine")
    assert "launch.py" not in text


def test_an_expected_failure_is_shown_and_does_not_raise(program):
    program.write_text("raise ValueError('as planned')")
    cell = f"run = %torchrun --expect-failure --nproc-per-node 1 {program}"
    *_, shown = run(lesson(cell))
    assert "rank 0: ValueError: as planned" in shown.data["text/plain"]


def test_the_kernel_works_in_the_root_folder(tmp_path):
    (output,) = run(
        lesson("import os; print(os.getcwd())"),
        resources={"metadata": {"path": str(tmp_path)}},
    )
    assert output.text == f"{ROOT}\n"


@pytest.mark.parametrize("line", ["", "--timeout soon x.py", "--timeout"])
def test_a_misspelt_magic_says_how_it_is_spelt(line):
    with pytest.raises(UsageError):
        magics.torchrun(line)

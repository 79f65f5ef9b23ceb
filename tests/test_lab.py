"""`make lab` and the cells of a notebook: a failing lesson, and what a cell shows."""

import pytest

pytest.importorskip("papermill", reason="these tests need Jupyter")

import nbformat  # noqa: E402
from IPython.core.error import UsageError  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.kit.cell import magics  # noqa: E402
from ddp_lab.kit.run.warm import LENT  # noqa: E402
from tools import lab, notebooks  # noqa: E402

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
    assert table[0].startswith("01_sick") and "In [5] RunFailed: rank" in table[0]
    name, _, ranks, backend, result = table[1].split()
    assert (name, ranks, result) == ("02_well", "3", "ok")
    assert backend in ("gloo", "nccl")
    assert "[rank 2] of 3" in (lab.FOLDER / "02_well.html").read_text()
    assert "No such file" in (lab.FOLDER / "01_sick.html").read_text()


def test_an_unknown_lesson_is_refused_in_one_sentence():
    with pytest.raises(SystemExit, match="there is no lesson 77; there are 00"):
        notebooks.lessons(["77"])


def test_the_stored_output_is_the_command_and_the_ranks_in_order(program):
    outputs = run(lesson(f"run = %torchrun --nproc-per-node {{nproc}} {program}"))
    assert [output.output_type for output in outputs] == ["display_data"] * 2
    command, lines = (output.data["text/plain"] for output in outputs)
    assert command == f"$ torchrun --standalone --nproc-per-node 2 {program}"
    assert lines.splitlines()[:2] == ["[rank 0] of 2", "[rank 1] of 2"]


def test_a_run_is_shown_as_a_table(program):
    cell = f"run = %torchrun --nproc-per-node {{nproc}} {program}"
    (shown,) = run(lesson(cell, "run"))
    assert shown.data["text/plain"] == "<Run, 2 ranks, ok>"
    assert "<tr><td>1</td><td>0</td><td>1</td><td></td></tr>" in shown.data["text/html"]


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

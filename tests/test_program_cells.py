"""%%program: what files cells make, in which order they may run, what they refuse."""

import ast
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.error import UsageError
from nbformat.v4 import new_code_cell, new_notebook

from ddp_lab import ROOT
from ddp_lab.kit.cell import end, magics, program, variants, written
from ddp_lab.kit.cell.changes import ProgramError
from ddp_lab.kit.cell.compose import Order, whole
from ddp_lab.kit.cell.source import take_apart
from whichrank.run.result import Run, RunFailed

HEAD = '''"""Shows a thing."""

import torch

SIZE = 3


def first():
    return SIZE
'''
REST = """import math


def second():
    return first() + math.pi


def main(rank, world_size, device):
    return {"sum": second(), "device": str(torch.device("cpu"))}
"""
BASE = HEAD + "\n\n" + REST.replace("import math\n\n\n", "import math\n\n\n")


def made(cell, path="a/new.py", other="", **files):
    """Return the program that `cell` makes; `files` are there, a/NAME.py for NAME."""
    there = {f"a/{name}.py": text for name, text in files.items()}
    return whole(Order(path, other), cell, there.get, "notebooks/00_a.ipynb")


def lesson(cell, **options):
    """Return what of a program stands above the rule line, below the imports."""
    text = made(cell, **options).text.partition(f"\n\n\n{end.RULE}")[0]
    return text.partition("import record\n")[2].strip()


def variation(cell, **files):
    """Return the lesson of a program that is made of `base`."""
    files = {"base": made(BASE).text} | files
    doc = "" if cell.startswith('"""') else '"""Another thing."""\n\n'
    return lesson(doc + cell, other="a/base.py", **files)


def names(text):
    """Return what a text defines, from top to bottom."""
    return [name for item in take_apart(text).items for name in sorted(item.names)]


def test_a_program_has_its_command_its_imports_and_its_end():
    text = made(BASE).text
    assert text.startswith(
        '"""Shows a thing.\n\n    torchrun --standalone --nproc-per-node 2 a/new.py\n\n'
        'Written by notebooks/00_a.ipynb.\n"""\n\nimport gc\nimport json\nimport math\n'
    )
    assert text.endswith('\n\n\nif __name__ == "__main__":\n    run()\n')
    assert text.count(end.RULE_LINE) == 1 and "facts := main(rank, world_size" in text
    assert "rpc" not in text


def test_what_main_takes_chooses_how_a_program_joins():
    calls = BASE.replace("rank, world_size, device", "rank, world_size")
    assert "with workers() as (rank, world_size):" in made(calls).text
    assert "def process_group" not in made(calls).text
    patient = calls.replace("SIZE = 3", "SIZE = 3\nOPTIONS = {'rpc_timeout': 5}")
    assert "with workers(**OPTIONS) as (rank, world_size):" in made(patient).text
    both = BASE.replace(
        "    return {", "    with workers():\n        pass\n    return {"
    )
    assert "def process_group" in made(both).text and "def workers" in made(both).text
    own = BASE.replace("def main(rank, world_size, device)", "def main()")
    assert made(own).text.endswith("    main()\n") and "def run" not in made(own).text
    guarded = own + "\n\n# Why.\nif __name__ == '__main__':\n    main()\n"
    assert made(guarded).text.endswith(
        "\n\n\n# Why.\nif __name__ == '__main__':\n    main()\n"
    )


def test_a_block_of_the_end_that_a_cell_brings_is_not_written_twice():
    own = BASE + "\n\n" + take_apart(end.BLOCKS).items[0].text + "\n"
    assert made(own).text.count("def process_group(") == 1


def test_the_command_is_the_docstrings_if_it_has_one():
    told = BASE.replace("a thing.", "a thing.\n\n    python a/new.py --all\n")
    assert "torchrun" not in ast.get_docstring(ast.parse(made(told).text))
    order = Order.parse("--nproc-per-node 4 a/new.py")
    assert "--nproc-per-node 4 a/new.py" in whole(order, BASE, {}.get).text


# --- --from ---


def test_a_definition_takes_the_place_of_its_namesake():
    assert variation("def first():\n    return 2 * SIZE\n") == (
        "SIZE = 3\n\n\ndef first():\n    return 2 * SIZE\n\n\n"
        "def second():\n    return first() + math.pi\n\n\n"
        + REST[REST.index("def main") :].strip()
    )


def test_what_is_new_stands_above_what_follows_it_or_uses_it():
    text = variation(
        "WIDTH = 4\n\n\ndef helper():\n    pass\n\n\ndef second():\n    first()\n"
    )
    assert names(text) == ["SIZE", "WIDTH", "first", "helper", "second", "main"]
    text = variation(
        "def helper():\n    return 1\n\n\n"
        " def second():\n-    return first() + math.pi\n+    return helper()\n"
    )
    assert names(text) == ["helper", "second", "main"]
    text = variation("def last():\n    pass\n")
    assert names(text) == ["SIZE", "first", "second", "last", "main"]
    # A constant that needs a function cannot stand above it.
    text = variation("WAYS = [first]\n")
    assert names(text) == ["SIZE", "first", "second", "WAYS", "main"]


def test_what_nothing_uses_any_more_is_left_out():
    new = made(
        '"""A."""\n\ndef second():\n    return 1\n',
        other="a/base.py",
        base=made(BASE).text,
    )
    assert "SIZE =" not in new.text and "import math" not in new.text
    assert new.new == ["second"] and new.gone == ["first"]
    # A local variable of the same name is no use of it, an annotation is.
    local = "def second():\n    SIZE = 1\n    return SIZE\n"
    assert names(variation(local)) == ["second", "main"]
    noted = "def second(a: SIZE):\n    pass\n"
    assert names(variation(noted)) == ["SIZE", "second", "main"]


def test_what_a_cell_says_stays_though_nothing_uses_it():
    text = variation("import sys\n\n\ndef unused():\n    pass\n\n\nprint(sys.path)\n")
    assert "def unused" in text and "print(sys.path)" in text


def test_replaced_lines_are_looked_up_as_whole_lines():
    text = variation(" def first():\n-    return SIZE\n+    return 7\n")
    assert "def first():\n    return 7\n" in text
    for cell, why in {
        "-    return SIZ\n": "0 times",
        "-    return SIZE\n+    return 8\n\n-    return SIZE\n": "0 times",
        "+    return 8\n": "needs a line",
        "x = 1\n-    return SIZE\n": "blank lines around",
    }.items():
        with pytest.raises(ProgramError, match=why):
            variation(cell)


def test_below_the_cell_stands_what_is_new_changed_and_gone():
    cell = """\"""A.\"""

import sys


def helper():
    return sys.argv


 def second():
-    return first() + math.pi
+    return helper()
"""
    new = made(cell, other="a/base.py", base=made(BASE).text)
    assert (new.new, new.changed, new.gone) == (["helper"], ["second"], ["first"])
    said = program.says(new)["text/plain"]
    assert said.startswith("helper is new; second changed; the rest as in base.py, wi")


def test_what_further_cells_bring_is_not_called_changed():
    cell = """\"""A.\"""

 def second():
-    return first() + math.pi
+    return first() + third()
"""
    first = Order("a/new.py", "a/base.py")
    files = {"a/base.py": made(BASE).text}
    alone = whole(first, cell, files.get)
    files[first.path] = alone.text
    more = "import re\n\n\ndef third():\n    return re\n"
    more += "\n\ndef main(rank, world_size, device):\n    return second()\n"
    files[first.path] = whole(Order(first.path), more, files.get).text
    again = whole(first, cell, files.get, further={"third", "main"})
    assert "def third" in again.text and again.text == files[first.path]
    assert again.changed == alone.changed == ["second"]
    assert again.gone == alone.gone == []


def test_a_frame_lends_its_docstring_another_program_does_not():
    stub = "def first():\n    return None  # your code here\n"
    text = made(stub, other="a/frames.py", frames=BASE).text
    assert '"""Shows a thing.\n\n    torchrun' in text and "a/new.py" in text
    assert "your code here" in text and text.count("def first") == 1
    with pytest.raises(ProgramError, match="a docstring has to say"):
        made(stub, other="a/base.py", base=made(BASE).text)


def test_half_of_an_assignment_cannot_be_replaced():
    base = made(BASE.replace("SIZE = 3", "SIZE, WIDTH = 3, 4")).text
    with pytest.raises(ProgramError, match="define WIDTH as well"):
        variation("SIZE = 5\n", base=base)
    assert "SIZE, WIDTH = 5, 6" in variation("SIZE, WIDTH = 5, 6\n", base=base)


# --- a program that is told in several cells ---


def test_cells_add_up_in_any_order():
    begun = made(HEAD).text
    assert end.RULE not in begun
    text = made(REST, new=begun).text
    assert names(lesson(BASE)) == names(text.partition(end.RULE)[0])
    ast.parse(text)
    # Each again, alone, as a reader may run it.
    assert made(REST, new=text).text == text
    assert made(HEAD, new=text).text == text
    edited = made(HEAD.replace("return SIZE", "return 2"), new=text).text
    assert "return 2" in edited and "def second" in edited
    assert made(HEAD, new=edited).text == text


def test_a_cell_that_is_whole_forgets_what_the_file_was():
    old = made(BASE.replace("def first", "def gone():\n    pass\n\n\ndef first")).text
    assert "def gone" in old and made(BASE, new=old).text == made(BASE).text
    moved = BASE.replace("SIZE = 3\n", "").replace(
        "\n\ndef main", "SIZE = 3\n\n\ndef main"
    )
    assert made(BASE, new=made(moved).text).text == made(BASE).text != made(moved).text
    assert not made(BASE).is_part and made(HEAD).is_part


def test_a_name_that_a_reader_has_changed_does_not_stay():
    text = made(REST, new=made(HEAD).text).text
    text = made(REST.replace("second", "other"), new=text).text
    assert "def other" in text
    assert "def second" not in made(HEAD, new=text).text


def test_a_file_that_was_broken_by_hand_is_begun_anew():
    broken = made(HEAD).text + "\ndef f(:\n"
    assert made(HEAD, new=broken).text == made(HEAD).text
    with pytest.raises(ProgramError, match="a/new.py is not valid Python then"):
        made(REST, new=broken)
    with pytest.raises(ProgramError, match="a/base.py is not valid Python then"):
        variation(" def first():\n-    return SIZE\n")


# --- what people write ---


@pytest.mark.parametrize(
    "part",
    [
        "@lru_cache(maxsize=None)\n@other\ndef f():\n    pass",
        "# Why f is.\n# Two lines.\ndef f():\n    pass",
        "def f():\n    pass\n    # its last word",
        "a, (b, c) = 1, (2, 3)",
        "a = b = 1",
        "X: int = 4",
        "if TYPE_CHECKING:\n    from a import B",
        "try:\n    import a\nexcept ImportError:\n    a = None",
        "def f():\n    pass\n\n\ndef f(a):\n    pass",
        "class A:\n    def first(self):\n        return SIZE",
        'TEXT = """\n# --- a line\n\n\nimport no\n"""',
        "os.environ['A'] = '1'",
        "for i in range(3):\n    print(i)",
        "with open('a') as f:\n    T = f.read()",
        "a = 1; b = 2",
        "async def f():\n    pass",
        "# The last word.",
    ],
)
def test_a_part_is_kept_as_it_is_written(part):
    text = made(BASE + "\n\n" + part + "\n").text
    assert f"\n{part}\n" in text
    assert text.count(part) == 1
    ast.parse(text)


def test_two_definitions_of_one_name_take_one_place():
    twice = "def first():\n    pass\n\n\ndef first():\n    return 1\n"
    assert names(variation(twice)) == ["first", "first", "second", "main"]
    assert variation(twice).count("def first") == 2


@pytest.mark.parametrize(
    "cell, why",
    [
        ("def f():\n    pass\n", "a cell that begins one has a docstring"),
        (BASE.replace("world_size, device", "size"), r"main\(rank, size\)"),
        (BASE + "\n\ndef run():\n    pass\n", "`run` is in its end"),
    ],
)
def test_what_makes_no_program_is_refused(cell, why):
    with pytest.raises(ProgramError, match=why):
        made(cell)


@pytest.mark.parametrize("line", ["", "--from a/b.py", "a/b", "--from"])
def test_a_magic_without_a_file_is_refused(line):
    with pytest.raises(ProgramError, match="which file"):
        Order.parse(line)


@pytest.mark.processes
def test_imports_are_sorted_as_ruff_does(tmp_path):
    lines = """
from __future__ import annotations
from torch.nn.parallel import DistributedDataParallel as DDP, DataParallel
import torch.nn.functional as F, os.path, os
from collections import abc, OrderedDict, UserDict as U, defaultdict
from torch.utils.data import SequentialSampler, RandomSampler, DataLoader, Dataset
from torch.utils.data import TensorDataset
from ctypes import c_int, RTLD_GLOBAL, PyDLL, CDLL
import torch.distributed as dist, torch
from torch import nn, Tensor
"""
    used = "os, F, abc, OrderedDict, U, defaultdict, SequentialSampler, RandomSampler"
    used += ", DataLoader, Dataset, TensorDataset, c_int, RTLD_GLOBAL, PyDLL, CDLL, nn"
    cell = f'"""A."""\n{lines}\n\ndef main(rank, world_size, device):\n'
    text = made(f"{cell}    return {used}, DDP, DataParallel, Tensor\n").text
    imports = text.partition("\n\n\ndef main")[0]
    (tmp_path / "a.py").write_text(imports + "\n")
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "I", "--diff"]
    said = subprocess.run([*ruff, tmp_path / "a.py"], capture_output=True, text=True)
    assert said.stdout == ""


# --- the magic ---


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """Work in an empty folder, and return what cells have displayed."""
    monkeypatch.chdir(tmp_path)
    shown = []
    monkeypatch.setattr(program, "display", lambda bundle, raw: shown.append(bundle))
    return shown


def test_the_magic_writes_the_file_and_says_so(workplace, tmp_path):
    (tmp_path / "notebooks").mkdir()
    for name in ("03_a-Copy1.ipynb", "03_a.ipynb", "04_b.ipynb"):
        cells = [new_code_cell("%%program --from a/new.py a/other.py\nX = 1")]
        cells += [new_code_cell("%%program a/new.py\nX = 1")] if "03" in name else []
        nbformat.write(new_notebook(cells=cells), tmp_path / "notebooks" / name)
    program.program("a/new.py", BASE.replace("\n", "\r\n"))
    text = (tmp_path / "a" / "new.py").read_bytes().decode()
    assert "\r" not in text and "Written by notebooks/03_a.ipynb." in text
    assert workplace[-1]["text/plain"].endswith("a/new.py")
    assert '<a href="../a/new.py">' in workplace[-1]["text/html"]
    program.program(
        "a/b.py --from a/new.py", '"""B."""\n\ndef first():\n    return 1\n'
    )
    assert workplace[-1]["text/plain"].startswith(
        "first is new; the rest as in new.py. The whole"
    )


def test_a_syntax_error_is_shown_and_nothing_is_written(workplace, tmp_path):
    program.program("a/new.py", BASE)
    before = (tmp_path / "a" / "new.py").read_text()
    with pytest.raises(ProgramError) as error:
        program.program("a/new.py", BASE + "\ndef f(:\n    pass\n")
    with pytest.raises(ProgramError, match="'return' outside function"):
        program.program("a/new.py", BASE + "\nreturn 1\n")
    line = BASE.count("\n") + 3  # the magic's line counts
    assert f"line {line}\n    def f(:\n          ^\nSyntaxError: " in str(error.value)
    assert (tmp_path / "a" / "new.py").read_text() == before
    with pytest.raises(ProgramError, match="there is no a/gone.py"):
        program.program("a/new.py --from a/gone.py", BASE)
    assert (tmp_path / "a" / "new.py").read_text() == before


def test_what_was_before_a_cell_that_is_refused_is_not_run(workplace, monkeypatch):
    runs = []
    monkeypatch.setattr(magics.launch, "torchrun", lambda c, **_: runs.append(c))
    monkeypatch.setattr(magics.screen.Screen, "finish", lambda *_: None)
    program.program("a/new.py", BASE)
    with pytest.raises(ProgramError):
        program.program("a/new.py", BASE + "\ndef f(:\n    pass\n")
    with pytest.raises(UsageError, match="a/new.py was not run: the cell that"):
        magics.torchrun("--nproc-per-node 2 a/new.py")
    magics.torchrun("a/other.py")
    program.program("a/new.py", BASE)
    magics.torchrun("a/new.py")
    assert runs == [["a/other.py"], ["a/new.py"]]


def test_options_of_the_lab_come_before_those_of_torchrun(workplace, monkeypatch):
    runs = []
    monkeypatch.setattr(magics.launch, "torchrun", lambda c, **_: runs.append(c))
    monkeypatch.setattr(magics.screen.Screen, "finish", lambda *_: None)
    with pytest.raises(UsageError, match="--timeout is no option of torchrun's: it"):
        magics.torchrun("--nproc-per-node 2 --timeout 5 a/other.py")
    magics.torchrun("-m package.train --timeout 5")  # that is the module's own
    assert runs == [["-m", "package.train", "--timeout", "5"]]


def test_who_runs_a_program_before_its_cell_is_told_the_notebook(workplace, tmp_path):
    (tmp_path / "notebooks").mkdir()
    notebook = new_notebook(cells=[new_code_cell("%%program a/late.py\n" + BASE)])
    nbformat.write(notebook, tmp_path / "notebooks" / "07_late.ipynb")
    with pytest.raises(UsageError, match="the cell of notebooks/07_late.ipynb whose"):
        magics.torchrun("--nproc-per-node 2 a/late.py")
    with pytest.raises(RunFailed, match="there is no file a/never.py"):
        magics.torchrun("--nproc-per-node 2 a/never.py")


def test_a_program_that_was_changed_elsewhere_is_run_with_a_word(
    workplace, monkeypatch, capsys
):
    """A lesson may be open twice: the other one's cells write the same files."""
    monkeypatch.setattr(magics.launch, "torchrun", lambda *_, **__: None)
    monkeypatch.setattr(magics.screen.Screen, "finish", lambda *_: None)
    program.program("a/new.py", BASE)
    paths = ["a/new.py", variants.variant("a/new.py", "SIZE = 3", "SIZE = 4")]
    for path in paths:
        magics.torchrun(path)
    assert "changed outside" not in capsys.readouterr().out
    for path in paths:
        Path(path).write_text("another")
        magics.torchrun(path)
        assert f"{path} was changed outside this notebook" in capsys.readouterr().out


def test_a_failed_exercise_says_that_there_are_hints(workplace, monkeypatch):
    def fails(*_, **__):
        raise RunFailed("rank 1: wrong", Run("torchrun", [], [], [], [], 0, None))

    monkeypatch.setattr(magics.launch, "torchrun", fails)
    monkeypatch.setattr(magics.screen.Screen, "finish", lambda *_, **__: None)
    for path, helps in (("start/exercise", True), ("start/hello", False)):
        with pytest.raises(RunFailed) as failed:
            magics.torchrun(f"ddp_lab/{path}.py")
        told = "\n".join(failed.value._render_traceback_())
        assert told == "RunFailed: rank 1: wrong" + "\nhint() helps." * helps


def test_a_change_that_fits_two_lines_is_told_which(workplace):
    Path("two.py").write_text("a = 1\nb = 1\n")
    with pytest.raises(ValueError, match="2 times, not once: in lines 1 and 2"):
        variants.variant("two.py", " = 1", " = 2")
    with pytest.raises(ValueError, match="0 times, not once$"):
        variants.variant("two.py", " = 3", " = 2")


def test_a_variant_of_a_variant_says_which_is_older(workplace, capsys):
    program.program("a/new.py", BASE)
    path = variants.variant("a/new.py", "SIZE = 3", "SIZE = 4")
    capsys.readouterr()
    variants.variant(path, "SIZE = 4", "SIZE = 5")
    before, after = capsys.readouterr().out.splitlines()[:2]
    assert (before, after) == ("--- as it was", f"+++ {path}")


def test_a_variant_is_a_copy_with_other_lines(workplace, tmp_path):
    program.program("a/new.py", BASE)
    path = "build/variants/a/new.py"
    program.variant("a/new.py", "-SIZE = 3\n+SIZE = 4\n")
    once = (tmp_path / path).read_text()
    assert once == (tmp_path / "a" / "new.py").read_text().replace("= 3", "= 4")
    assert workplace[-1]["text/plain"] == f"The whole program: {path}"
    program.variant(path, "-SIZE = 4\n+SIZE = 5\n\n def first():\n+    print()\n")
    twice = (tmp_path / path).read_text()
    first = "def first():\n"
    assert twice == once.replace("= 4", "= 5").replace(first, f"{first}    print()\n")


@pytest.mark.parametrize(
    "line, cell, said",
    [
        ("a/new.py", "", "lines with - go"),
        ("a/new.py", "SIZE = 4", "not so: SIZE = 4"),
        ("a/new.py", "-SIZE = 9\n+SIZE = 4", "has these lines 0 times"),
        ("a/none.py", "-SIZE = 3\n+SIZE = 4", "there is no a/none.py"),
        ("", "-SIZE = 3\n+SIZE = 4", "of which program?"),
    ],
)
def test_what_makes_no_variant_says_why(line, cell, said, workplace):
    program.program("a/new.py", BASE)
    with pytest.raises(ProgramError, match=said):
        program.variant(line, cell)
    path = "build/variants/a/new.py"
    assert line != "a/new.py" or written.texts[path] == ""


def test_a_program_that_a_reader_has_lost_is_the_labs(workplace, tmp_path):
    frame = next((ROOT / "ddp_lab").glob("*/frames/*.py")).relative_to(ROOT)
    stub = re.search(r"^def .*:\n", (ROOT / frame).read_text(), re.M)[0]
    program.program(f"a/new.py --from {frame}", f"{stub}    return 1\n")
    assert "return 1" in (tmp_path / "a" / "new.py").read_text()


# What torch.distributed says, and whose tensors gloo carries.
BACKENDS = {"cuda": "nccl", "xpu": "xccl", "mps": "gloo"}


@pytest.fixture
def joins(monkeypatch):
    """Return a function that tells how the shared end joins, and whether it leaves."""

    def join(kind, seen, ranks, raises=False, **said):
        for name in ("SLURM_GPUS_ON_NODE", "TORCHELASTIC_RUN_ID"):
            monkeypatch.delenv(name, raising=False)
        told = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(ranks)} | said
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        done, spaces = [], {}
        exec(end.BLOCKS, spaces)
        accelerator = SimpleNamespace(
            device_count=lambda: seen,
            current_accelerator=lambda: SimpleNamespace(type=kind),
            set_device_index=lambda index: None,
        )
        spaces["torch"] = SimpleNamespace(
            accelerator=accelerator, device=lambda *where: where[0]
        )
        spaces["dist"] = SimpleNamespace(
            init_process_group=lambda backend, device_id: done.append(backend),
            destroy_process_group=lambda: done.append("left"),
            get_default_backend_for_device=BACKENDS.get,
            get_rank=lambda: 0,
            get_world_size=lambda: ranks,
        )
        with suppress(ValueError), spaces["process_group"]() as (*_, device):
            done.append(device)
            if raises:
                raise ValueError
        return done

    return join


NCCL = "cpu:gloo,cuda:nccl"


@pytest.mark.parametrize(
    "seen, said, ranks, backend",
    [
        (2, {}, 2, NCCL),
        (1, {}, 2, "gloo"),
        (1, {"SLURM_GPUS_ON_NODE": "1"}, 2, "gloo"),  # two tasks share one
        (1, {"SLURM_GPUS_ON_NODE": "2"}, 2, NCCL),  # --gpus-per-task=1
        (1, {"SLURM_GPUS_ON_NODE": "2", "TORCHELASTIC_RUN_ID": "0"}, 2, "gloo"),
        (3, {"SLURM_GPUS_ON_NODE": "4"}, 4, "gloo"),  # fewer than the job has
    ],
)
def test_a_task_that_sees_one_gpu_of_its_own_does_not_share_it(
    seen, said, ranks, backend, joins
):
    """Seen with SLURM 22.05, which sets no SLURM_GPUS_PER_TASK in such a step.

    Ranks of one torchrun all see the same GPUs: who shows them one lets them share it.
    """
    assert joins("cuda", seen, ranks, **said) == [backend, "cuda", "left"]


@pytest.mark.parametrize(
    "kind, seen, backend, device",
    [
        ("cuda", 0, "gloo", "cpu"),  # a CUDA build without a GPU
        ("xpu", 2, "cpu:gloo,xpu:xccl", "xpu"),
        ("xpu", 1, "gloo", "cpu"),  # shared, and gloo does not carry its tensors
        ("mps", 1, "gloo", "cpu"),
        ("mps", 2, "gloo", "cpu"),
    ],
)
def test_an_accelerator_is_taken_where_its_tensors_can_be_sent(
    kind, seen, backend, device, joins
):
    assert joins(kind, seen, 2) == [backend, device, "left"]


def test_a_rank_that_raises_over_nccl_does_not_wait_for_the_others(joins):
    assert joins("cuda", 2, 2, raises=True) == [NCCL, "cuda"]
    assert joins("cuda", 1, 2, raises=True) == ["gloo", "cuda", "left"]


SCRIPT = '''\
"""A script as people write them."""


def main():
    print("done")


if __name__ == "__main__":
    main()
'''


def test_a_script_with_a_guard_of_its_own_has_no_end():
    made = whole(Order("a/b.py"), SCRIPT, {}.get)
    assert made.text.endswith("\n\n\n" + SCRIPT.partition("\n\n\n")[2])
    joins = SCRIPT.replace("    print", "    with process_group():\n        print")
    assert end.RULE in whole(Order("a/b.py"), joins, {}.get).text


def test_what_has_no_name_is_there_once_however_often_its_cell_is_run():
    begins = '"""Begins."""\nA = 1\n# a note\nprint(A)\n'
    goes_on = SCRIPT.partition("\n\n\n")[2]
    files = {}
    for cell in (begins, goes_on, goes_on, begins, goes_on):
        files["a/b.py"] = whole(Order("a/b.py"), cell, files.get).text
        assert files["a/b.py"].count("__name__") == ("main" in files["a/b.py"])
    assert files["a/b.py"].count("print(A)") == files["a/b.py"].count("# a note") == 1


def test_what_has_no_name_in_another_program_stays():
    base = whole(Order("a/base.py"), BASE + '\nCALLS = {}\nCALLS["a"] = 1\n', {}.get)
    other = Order("a/new.py", "a/base.py")
    cell = '"""Another."""\n\n\ndef more():\n    return CALLS\n'
    assert 'CALLS["a"] = 1' in whole(other, cell, {"a/base.py": base.text}.get).text

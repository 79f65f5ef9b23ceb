"""What nbval cannot see: notebooks and programs agree, all lessons have one form."""

import ast
import re
import statistics

import pytest
from conftest import PROGRAMS, SCRIPTS

pytest.importorskip("nbformat", reason="the notebooks' tests need Jupyter")

from IPython.core.inputtransformer2 import TransformerManager  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook, new_output  # noqa: E402

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.kit.cell import compose, program  # noqa: E402
from tools import notebooks as kit  # noqa: E402

HEADINGS = [
    "Goal",
    "Picture",
    "Predict",
    "Code",
    "Run",
    "Read the output",
    "Break it",
    "Build it",
    "Summary",
]

lessons = pytest.mark.parametrize("path", kit.lessons(), ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in kit.read(path).cells if cell.cell_type == kind]


@lessons
def test_the_committed_programs_are_what_the_cells_write(path):
    for file, text in kit.programs(path):
        assert file.read_bytes() == text.encode(), file.name


@lessons
def test_a_cell_that_is_run_again_alone_changes_nothing(path):
    """Readers run cells in any order; the files that are there are complete."""

    def read(name):
        return (ROOT / name).read_text() if (ROOT / name).exists() else None

    for order, cell in kit.program_cells(path):
        names = program.further(path, order.path)
        made = compose.whole(order, cell, read, f"notebooks/{path.name}", names)
        assert made.text == read(order.path), cell[:200]


PICTURES = {
    "before_after",
    "lives",
    "timeline",
    "timelines",
    "Plot",
}  # of draw and plots


def statements(cell) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))


def varied(path) -> set[str]:
    """Return the programs that a lesson makes variants of, and the folders they get."""
    code = cells(path, "code")
    text = "\n".join(cell.source for cell in code)
    made = set(re.findall(r"^%%variant (ddp_lab/\S+)", text, re.M))
    nodes = [node for cell in code for node in ast.walk(statements(cell))]
    for node in nodes:
        match node:
            case ast.Call(ast.Name("variant"), [ast.Constant(program), *_], keywords):
                folder = [ast.unparse(k.value) for k in keywords if k.arg == "folder"]
                made.add("".join([program, *folder]))
    return made


def test_two_lessons_make_no_variant_of_one_name():
    """Side by side they would run each other's."""
    made = [key for path in kit.lessons() for key in varied(path)]
    assert len(made) > 40
    assert sorted(made) == sorted({*made})


def drawn(tree: ast.Module) -> list[ast.Call]:
    """Return the calls of a cell that make a picture: by the kit, or by figs."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    figs = [alias for n in made if "figs." in f"{n.module}." for alias in n.names]
    names = PICTURES | {alias.asname or alias.name for alias in figs}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [c for c in calls if ast.unparse(c.func).rpartition(".")[2] in names]


def dropped(cell) -> list[str]:
    """Return the pictures that a cell makes and IPython does not show."""
    tree = statements(cell)
    made, lines = drawn(tree), [n for n in ast.walk(tree) if isinstance(n, ast.Expr)]
    unseen = [n for n in lines if n is not tree.body[-1] and n.value in made]
    return [ast.unparse(line) for line in unseen]


def test_no_picture_is_made_and_dropped():
    paths = [*kit.lessons(), *(ROOT / "classroom" / "source").glob("*/*.ipynb")]
    code = [cell for path in paths for cell in cells(path, "code")]
    assert [line for cell in code for line in dropped(cell)] == []


@lessons
def test_a_picture_that_a_cell_makes_is_in_its_output(path):
    for cell in cells(path, "code"):
        if drawn(statements(cell)):
            html = [
                output.get("data", {}).get("text/html", "") for output in cell.outputs
            ]
            assert "<img" in "".join(html), cell.source


BY_HAND = {"judge.py"}  # of the port that lesson 4 asks for


def test_every_program_is_written_by_one_notebook():
    written = [file for path in kit.lessons() for file, _ in kit.programs(path)]
    assert len(written) == len(set(written))
    scripts = {path for path in SCRIPTS.glob("*.py") if path.name not in BY_HAND}
    assert set(written) == {*PROGRAMS, *scripts}


@lessons
def test_the_notebook_is_normalised(path):
    tidy = kit.normalise(kit.read(path))
    assert path.read_text() == kit.dumps(tidy)


def test_outputs_do_not_name_the_folder_where_they_were_made():
    cell = new_code_cell("fails()")
    cell.outputs = [new_output("stream", text=f'File "{ROOT}/.venv/lib/torch.py"\n')]
    (tidy,) = kit.normalise(new_notebook(cells=[cell])).cells
    assert tidy.outputs[0].text == 'File ".venv/lib/torch.py"\n'


def test_outputs_have_no_script():
    cell = new_code_cell("form")
    html = "<img alt='a'>\n<script>(() => {\nplay();\n})();</script>"
    cell.outputs = [new_output("display_data", {"text/html": html, "text/plain": "a"})]
    (tidy,) = kit.normalise(new_notebook(cells=[cell])).cells
    assert tidy.outputs[0].data == {"text/html": "<img alt='a'>", "text/plain": "a"}


def test_a_page_leaves_out_the_code_of_folded_cells():
    """As JupyterLab does; nbconvert has its own mark for that."""
    cells = [new_code_cell("seen = 1"), new_code_cell("assert seen")]
    cells[1].metadata["tags"] = [kit.FOLDED]
    notebook = kit.normalise(new_notebook(cells=cells))
    exporter = pytest.importorskip("nbconvert").HTMLExporter()
    page, _ = exporter.from_notebook_node(notebook)
    text = re.sub(r"<[^>]+>", "", page)
    assert "seen = 1" in text and "assert seen" not in text


@lessons
def test_the_notebook_was_executed_and_is_small(path):
    assert path.stat().st_size <= 200 * 1024
    errors = [
        output.evalue
        for cell in cells(path, "code")
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert errors == []
    assert any(cell.outputs for cell in cells(path, "code"))


@lessons
def test_the_lesson_opens_as_all_do(path):
    first, second = cells(path, "code")[:2]
    assert first.source == "%load_ext ddp_lab"
    assert second.metadata.get("tags") == ["parameters"]
    assert re.match(r"nproc = \d+  # ", second.source)


@lessons
def test_the_headings_come_in_their_order(path):
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    found = [h.split(":")[0].strip() for h in re.findall(r"^## (.*)$", text, re.M)]
    core = [heading for heading in found if heading != "More"]
    assert found[len(core) :] == ["More"] * (len(found) - len(core))
    assert {*HEADINGS} - {"Break it"} <= {*core} <= {*HEADINGS}
    # A picture that answers a question comes after it.
    first = [core.index(h) for h in HEADINGS if h in core and h != "Picture"]
    assert first == sorted(first)
    assert re.match(r"# A?\d+ · \w", cells(path, "markdown")[0].source)
    assert "| Minutes | Ranks | Needs | Before this |" in text


@lessons
def test_each_heading_says_what_is_below_it(path):
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    headings = re.findall(r"^##+ (.*)$", text, re.M)
    assert len(set(headings)) == len(headings), sorted(headings)


@lessons
def test_a_guess_is_made_before_the_run(path):
    for cell in cells(path, "code"):
        guesses = re.search(r"\b(predict|suspect)\(", cell.source)
        assert not (guesses and "%torchrun" in cell.source), cell.source


@lessons
def test_two_long_code_cells_have_prose_between_them(path):
    previous = ""
    for cell in kit.read(path).cells:
        source = cell.source if cell.cell_type == "code" else ""
        assert min(len(source.splitlines()), len(previous.splitlines())) < 15
        previous = source


@lessons
def test_the_lesson_predicts_breaks_and_builds(path):
    text = "\n".join(cell.source for cell in cells(path, "code"))
    assert "predict(" in text and ".compare(" in text
    assert "--expect-failure" in text
    # A program with a gap, or a sick one and the change that cures it.
    assert "/exercise" in text or 'old, new = "", ""' in text


LINES = 40
"""Of all code cells but a tenth; words, cells and launches nobody counts: authors write
up to each number that is counted."""


@lessons
def test_a_lesson_has_short_cells(path):
    sizes = [len(cell.source.splitlines()) for cell in cells(path, "code")]
    assert statistics.quantiles(sizes, n=10)[-1] <= LINES


@lessons
def test_every_run_is_kept_by_name(path):
    for cell in cells(path, "code"):
        for line in cell.source.splitlines():
            if "%torchrun" in line or re.search(r"%python\b", line):
                assert re.match(r"\s*\w+ = %(torchrun|python) ", line), line
            assert not line.startswith("!torchrun")

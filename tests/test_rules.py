"""The rules that every program keeps, so that a reader may rely on them."""

import ast
import json
import re
import statistics
import sys

from conftest import PROGRAMS, name_of

from ddp_lab import ROOT
from ddp_lab.kit.cell import end
from ddp_lab.kit.cell.compose import Order, whole
from ddp_lab.kit.cell.source import take_apart

STANDARD_LIBRARY = set(sys.stdlib_module_names)
# Lines above the rule line, and the few files where it may be more.
MOST_LINES = 160
LENGTH = {
    # Whole trainings, to be read from top to bottom.
    "cifar10/resnet.py": 218,
    # A run that saves and restores all of its state, and one that never stops.
    "checkpoint/resume.py": 180,
    # What is tried on a launcher, and what a rank does that is tried on.
    "nodes/exercise_launcher.py": 197,
    # All that forward decides, and a network with every kind of weight.
    "inside/graph.py": 166,
    # An old training, and all that is looked at in what it leaves behind.
    "old_pages/exercise.py": 192,
    # DDP and a stage of ZeRO, and what compares and counts for every stage.
    "sharding/zero1.py": 182,
    "sharding/zero2.py": 187,
    "sharding/zero3.py": 182,
    # One file to take home, with what it is compared to; and the same to be written.
    "sharding/recipe.py": 207,
    "sharding/exercise_recipe.py": 291,
    # Whole fine-tunings, and one process that does the same.
    "tune/train.py": 246,
    "tune/lora.py": 330,
    "tune/resume.py": 250,
    "tune/exercise.py": 263,
    # Trainings in which each shortcut costs more, drawn or found by a search.
    "scale/exercise_cheapest.py": 182,
    # Four bugs, and what lets each of them show.
    "rpc/exercise_specimens.py": 178,
    # A cost model, to be read from top to bottom.
    "scale/road.py": 325,
    # Three cuts as the field writes them, the reference, and a counter of bytes.
    "scale/three_d.py": 219,
    # A training by two teams, the one process that it equals, and what compares both.
    "rewards/teams.py": 184,
    "rewards/behind.py": 214,
}
# What every program ends with begins below this line.
RULE = end.RULE
# Lesson 0 shows how a program joins without that end.
PLAIN = "start/join.py"
LONGEST_FUNCTION, LONGEST_MAIN = 25, 40


def for_all_programs(rule, programs=PROGRAMS):
    """Make one test of a rule; it names every program that breaks it, and how."""

    def test():
        broken = {}
        for path in programs:
            try:
                rule(path)
            except AssertionError as error:
                broken[name_of(path)] = str(error)
        assert not broken

    return test


def for_all_that_join_alike(rule):
    """Make one test of a rule for the programs with the end that all share."""
    return for_all_programs(rule, [p for p in PROGRAMS if name_of(p) != PLAIN])


def functions(path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    return {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def length(function: ast.FunctionDef) -> int:
    return function.end_lineno - function.lineno + 1


@for_all_that_join_alike
def test_the_end_is_the_same_everywhere(path):
    text = path.read_text()
    lesson, _, below = text.partition(RULE)
    guard = below[below.rindex("\n\n\n") :]
    if guard.startswith("\n\n\n#"):  # a program may say why its guard matters
        lesson += guard
    assert whole(Order(f"ddp_lab/{name_of(path)}"), lesson, {}.get).text == text


@for_all_programs
def test_a_block_that_a_lesson_shows_is_that_of_the_end(path):
    shared, own = take_apart(end.BLOCKS).names, take_apart(path.read_text()).names
    for name in own.keys() & shared:  # above the first one stands the rule line
        assert own[name].text.endswith(shared[name].text)


@for_all_programs
def test_a_program_is_complete_alone(path):
    allowed = {"torch", "torchvision"}
    # All lessons that split a transformer split the first; one model prices all of it.
    models = "ddp_lab.gpt", "ddp_lab.scale.road"
    if path.parent.name == "tune":  # the model that is published, and its files
        allowed, models = allowed | {"safetensors"}, (*models, "ddp_lab.llama")
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in getattr(node, "names", [])]
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in names:
                top = name.split(".")[0]
                mine = top in allowed or top in STANDARD_LIBRARY or name in models
                assert mine, f"imports {name}"


@for_all_that_join_alike
def test_the_program_joins_and_leaves_by_the_context_manager(path):
    # Their lessons are how to join without a size, and a world that is not there.
    if name_of(path) in {"rpc/guest.py"}:
        return
    lesson, _, below = path.read_text().partition(RULE)
    joined = re.findall(r"^ +with .+", lesson + below, re.MULTILINE)
    for block in re.findall(r"^def (process_group|workers)\(", below, re.MULTILINE):
        assert sum(f" {block}(" in line for line in joined) == 1, block
    assert any(" as (rank, " in line for line in joined)
    # In the code: the page of an old tutorial, which is a text here, runs alone.
    nodes = [vars(node) for node in ast.walk(ast.parse(lesson))]
    named = {node.get(key) for node in nodes for key in ("id", "attr", "name")}
    assert named.isdisjoint({"init_process_group", "destroy_process_group", "init_rpc"})


@for_all_that_join_alike
def test_main_is_recorded_and_guarded(path):
    text = path.read_text()
    assert ("@record\ndef main():" in text) != ("@record\ndef run():" in text)
    assert text.rstrip().splitlines()[-2:-1] == ['if __name__ == "__main__":']


@for_all_programs
def test_the_budget_is_kept(path):
    lesson = path.read_text().partition(RULE)[0]
    assert len(lesson.splitlines()) <= LENGTH.get(name_of(path), MOST_LINES)
    for name, function in functions(path).items():
        limit = LONGEST_MAIN if name == "main" else LONGEST_FUNCTION
        assert length(function) <= limit, name


def test_the_page_for_authors_has_the_same_budget():
    said = (
        f"A function has up to {LONGEST_FUNCTION} lines, `main()` {LONGEST_MAIN}, "
        f"the lesson's part of a file, down to the rule line, {MOST_LINES};"
    )
    assert said in (ROOT / "CONTRIBUTING.md").read_text()
    assert all(lines > MOST_LINES for lines in LENGTH.values())


def first_function(path) -> int:
    """Return the line at which the first function or class begins."""
    body = ast.parse(path.read_text()).body
    kinds = (ast.FunctionDef, ast.ClassDef)
    return next(node.lineno for node in body if isinstance(node, kinds))


def test_the_idea_comes_early():
    assert statistics.median(first_function(path) for path in PROGRAMS) <= 28


@for_all_programs
def test_the_docstring_is_the_usage_page(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert re.search(rf"^    .*ddp_lab/{name_of(path)}", doc, re.MULTILINE), (
        "the command"
    )
    notebook = re.search(r"Written by (notebooks/\w+\.ipynb)\.", doc)
    assert notebook and (ROOT / notebook[1]).exists()


@for_all_programs
def test_the_name_shadows_no_module(path):
    # A rank's sys.path begins with its script's folder.
    assert path.stem not in STANDARD_LIBRARY | {"torch", "torchvision", "numpy"}


@for_all_programs
def test_every_print_is_flushed(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            assert any(word.arg == "flush" for word in node.keywords), node.lineno


@for_all_programs
def test_ddp_is_freed_before_its_group(path):
    # Up to torch 2.13 leaving the group can wait for ever for a model that is alive.
    # What main holds is freed when it returns.
    lesson = path.read_text().partition(RULE)[0]
    joins = "with process_group()" in lesson and "DDP" in lesson
    assert not joins or re.search(r"^ +del \w", lesson, re.M)


def test_the_table_of_rings_says_what_make_runs():
    """Each ring's marks are those of its recipe, and each of them is declared."""
    page, recipes = (ROOT / n for n in ("CONTRIBUTING.md", "authors.mk"))
    table = re.findall(
        r"^\| `make ([\w-]+)` \| [^|]+ \| ([^|]+) \|", page.read_text(), re.M
    )
    assert [ring for ring, _ in table] == ["check", "test", "lab", "test-all"]
    declared = re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(), re.M)
    for ring, told in table:
        recipe = re.search(rf"^{ring}:.*\n((?:\t.*\n)*)", recipes.read_text(), re.M)
        ran = re.findall(r'-m (?:"([^"]+)"|(\w+)) tests', recipe[1] if recipe else "")
        marks = re.findall(r"`([^`]+)`", told)
        assert marks == ["".join(each) for each in ran], ring
        words = set(re.findall(r"[a-z]+", " ".join(marks))) - {"not", "or"}
        assert words <= {*declared}, ring


def is_distance(node: ast.AST) -> bool:
    """Tell whether `node` is made of the length of a difference."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    lengths = [c for c in calls if ast.unparse(c.func).endswith(("abs", "norm"))]
    return any(isinstance(part, ast.Sub) for c in lengths for part in ast.walk(c))


def blind_to_nan(text: str) -> list[str]:
    """Return the comparisons that a NaN passes: `off > tolerance` is then False.

    In an assert NaN fails, so there all is well; but Python's max drops a NaN anywhere.
    """
    nodes, found = [*ast.walk(ast.parse(text))], []
    safe = {
        id(part) for n in nodes if isinstance(n, ast.Assert) for part in ast.walk(n)
    }
    bound = [n for n in nodes if isinstance(n, ast.Assign | ast.NamedExpr)]
    names = {
        ast.unparse(n.target if isinstance(n, ast.NamedExpr) else n.targets[0])
        for n in bound
        if is_distance(n.value)
    }
    for node in nodes:
        match node:
            case ast.Call(ast.Name("max"), args) if any(map(is_distance, args)):
                found.append(node)
            case ast.Compare(left, [ast.Gt() | ast.GtE()], [right]):
                small = re.fullmatch(r"0\.[0-4]\d*|[\d.]+e-\d+", ast.unparse(right))
                far = small or is_distance(left) or ast.unparse(left) in names
                found += [node] if far and id(node) not in safe else []
    return [ast.unparse(node) for node in found]


def code_of(path) -> str:
    """Return a program's text, or that of all cells of a notebook without magics."""
    if path.suffix == ".py":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    return re.sub(r"^.*%(?=[a-z%]).*", "", "\n".join(code), flags=re.M)


def test_no_comparison_lets_nan_pass():
    """Two numbers: `math.isclose`; tensors: `torch.allclose`; else `not off < ...`."""
    folders = "ddp_lab", "answers", "tests/answers", "classroom"
    paths = [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]
    paths += sorted(ROOT.glob("classroom/source/*/*.ipynb"))
    found = {str(p.relative_to(ROOT)): blind_to_nan(code_of(p)) for p in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_that_rule_knows_a_comparison_that_nan_passes():
    blind = [
        "if abs(a - b) > tolerance: raise Wrong",
        "if any(abs(m - right) > 1e-3 for m in means): raise Wrong",
        "off = (a - b).norm() / b.norm()\nif off > limit: raise Wrong",
        "if (off := (a - b).abs().max()) > limit: raise Wrong",
        "if facts['gap'] > 1e-4: raise Wrong",
        "assert max(abs(a - b) for a, b in pairs) < 1e-3",
    ]
    sees = [
        "if not math.isclose(a, b, abs_tol=1e-3): raise Wrong",
        "if not abs(a - b) < 1e-3: raise Wrong",
        "assert abs(a - b) > 1",
        "if sent > 2 * size: raise Wrong",
    ]
    assert [len(blind_to_nan(text)) for text in blind] == [1] * len(blind)
    assert [len(blind_to_nan(text)) for text in sees] == [0] * len(sees)

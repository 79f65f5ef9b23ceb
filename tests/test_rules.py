"""The rules that every program keeps, so that a reader may rely on them."""

import ast
import re
import statistics
import sys

import pytest
from conftest import PROGRAMS, name_of

from ddp_lab import ROOT

STANDARD_LIBRARY = set(sys.stdlib_module_names)
# Of the lesson's part, where it may be longer than MOST_LINES.
LENGTH = {
    # Whole trainings, to be read from top to bottom.
    "cifar10/fast.py": 216,
    "cifar10/resnet.py": 218,
    # A stage with its links, its schedule and the diary from which it is drawn.
    "model/one_f_one_b.py": 145,
    "model/pipeline.py": 132,
    # What is timed, what it is compared with, and the buckets counted beside it.
    "cifar10/settings.py": 139,
    # What is tried on a launcher, and what a rank does that is tried on.
    "nodes/exercise_launcher.py": 171,
    # A whole training with what ends it; what it keeps, and what proves that.
    "elastic/exercise.py": 153,
    "elastic/survive.py": 162,
    # Saving and loading belong together, and each explains what can go wrong.
    "checkpoint/dcp.py": 125,
    "checkpoint/resume.py": 125,
    # The network cut, and the network whole.
    "rpc/rnn.py": 127,
    # Six ways to one gradient, side by side.
    "rpc/contexts.py": 137,
    # A server, its trainers, and the replay that proves what they have done.
    "rpc/parameter_server.py": 143,
    # A stage with its diary, and the calls that drive it.
    "rpc/pipeline.py": 138,
    # One model twice: how each asks its table, steps it, and proves it.
    "rpc/table_rows.py": 135,
    "rpc/table_server.py": 134,
    # A whole training: environment, agent, observers, and what a policy is worth.
    "rpc/observers.py": 136,
    # Four bugs, and for each what shows it.
    "rpc/exercise_specimens.py": 150,
    # What is counted, and how the kernel is asked.
    "rpc/wire.py": 122,
    # An old training, and all that is looked at in what it leaves behind.
    "old_pages/exercise.py": 162,
    # Eight sentences, and an experiment for each.
    "old_pages/exercise_sentences.py": 139,
    # One road, and what is the same on all of them: network, truth, and three counts.
    "overview/averaging.py": 151,
    "overview/data_parallel.py": 146,
    "overview/ddp.py": 149,
    "overview/one_process.py": 145,
    "overview/pipeline.py": 154,
    "overview/remote.py": 182,
    "overview/sharded.py": 151,
    "overview/tensor.py": 155,
    # Three roads, and how the kernel is asked.
    "overview/exercise_bytes.py": 124,
    # Six questions, and both sides of each border.
    "overview/road.py": 120,
}
# What every program ends with begins below this line.
RULE = "# --- the same in every program"
# Of a program that starts its ranks itself, before the guard.
REIMPORT = "# Each rank imports this file anew, and must not spawn again.\n"
# Lines above the rule line: what is the same everywhere nobody reads twice.
MOST_LINES = 118
LONGEST_FUNCTION, LONGEST_MAIN = 25, 40
# The median of the lines on which a program's constants or functions begin.
EARLY = 28

programs = pytest.mark.parametrize("path", PROGRAMS, ids=name_of)


def functions(path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    return {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def length(function: ast.FunctionDef) -> int:
    return function.end_lineno - function.lineno + 1


def blocks(text: str) -> list[str]:
    """Return what `text` holds from the rule line on: line, blocks, guard."""
    end = text.replace(REIMPORT, "").partition(RULE)[2]
    return re.split(r"\n{3}(?=@|if)", end)


def test_the_end_is_the_same_everywhere():
    line, group, guard = blocks((ROOT / "ddp_lab/p2p/ring.py").read_text())
    workers = blocks((ROOT / "ddp_lab/rpc/calls.py").read_text())[1]
    assert "def process_group():" in group and "def workers(" in workers
    allowed = [[line, *b, guard] for b in ([group], [workers], [group, workers])]
    wrong = [name_of(p) for p in PROGRAMS if blocks(p.read_text()) not in allowed]
    assert wrong == []


@programs
def test_a_program_is_complete_alone(path):
    allowed = {"torch", "torchvision"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in getattr(node, "names", [])]
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in names:
                top = name.split(".")[0]
                assert top in allowed or top in STANDARD_LIBRARY, f"imports {name}"


@programs
def test_the_program_joins_and_leaves_by_the_context_manager(path):
    lesson, _, end = path.read_text().partition(RULE)
    joined = re.findall(r"^    with .+", lesson, re.MULTILINE)
    for block in re.findall(r"^def (process_group|workers)\(", end, re.MULTILINE):
        assert sum(f" {block}(" in line for line in joined) == 1, block
    assert re.search(r"^    with .* as \(rank, ", lesson, re.MULTILINE)
    assert "init_process_group" not in lesson and "destroy_process" not in lesson
    assert "rpc.init_rpc(" not in lesson


@programs
def test_main_is_recorded_and_guarded(path):
    text = path.read_text()
    assert "@record\ndef main(" in text
    assert text.rstrip().splitlines()[-2:-1] == ['if __name__ == "__main__":']


@programs
def test_the_budget_is_kept(path):
    lesson = path.read_text().partition(RULE)[0]
    assert len(lesson.splitlines()) <= LENGTH.get(name_of(path), MOST_LINES)
    for name, function in functions(path).items():
        limit = LONGEST_MAIN if name == "main" else LONGEST_FUNCTION
        assert length(function) <= limit, name


def first_function(path) -> int:
    """Return the line at which the first function or class begins."""
    body = ast.parse(path.read_text()).body
    kinds = (ast.FunctionDef, ast.ClassDef)
    return next(node.lineno for node in body if isinstance(node, kinds))


def test_the_idea_comes_early():
    assert statistics.median(first_function(path) for path in PROGRAMS) <= 28


@programs
def test_the_docstring_is_the_usage_page(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert re.search(rf"^    .*ddp_lab/{name_of(path)}", doc, re.MULTILINE), (
        "the command"
    )
    notebook = re.search(r"Written by (notebooks/\w+\.ipynb)\.", doc)
    assert notebook and (ROOT / notebook[1]).exists()


@programs
def test_the_name_shadows_no_module(path):
    # A rank's sys.path begins with its script's folder.
    assert path.stem not in STANDARD_LIBRARY | {"torch", "torchvision", "numpy"}


@programs
def test_every_print_is_flushed(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            assert any(word.arg == "flush" for word in node.keywords), node.lineno


def held(value: ast.AST | None, makers: set[str]) -> bool:
    """Return whether `value` keeps what one of `makers` has made.

    What is made as an argument of another call, `train(DDP(net))`, is gone after it.
    """
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).split(".")[-1] in makers
    return value is not None and any(
        held(child, makers) for child in ast.iter_child_nodes(value)
    )


def kept(function: ast.FunctionDef, makers: set[str]) -> set[str]:
    """Return the names under which `function` keeps what one of `makers` has made."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and held(node.value, makers):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {ast.unparse(n) for t in targets for n in _parts(t)}
    return names


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]


def makers_of_ddp(tree: ast.Module) -> set[str]:
    """Return DDP, the functions that return one, and the classes that keep one."""
    makers, before = {"DDP", "DistributedDataParallel"}, set()
    while makers != before:
        before = set(makers)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
                if any("self." in name for m in methods for name in kept(m, makers)):
                    makers.add(node.name)
            if isinstance(node, ast.FunctionDef):
                names = kept(node, makers)
                for back in ast.walk(node):
                    if isinstance(back, ast.Return) and back.value:
                        values = {ast.unparse(n) for n in _parts(back.value)}
                        if names & values or held(back.value, makers):
                            makers.add(node.name)
    return makers


def outlives_its_group(text: str) -> set[str]:
    """Return the names that still hold a DDP model where its process group ends."""
    tree = ast.parse(text)
    makers, alive = makers_of_ddp(tree), set()
    for function in (n for n in tree.body if isinstance(n, ast.FunctionDef)):
        for block in (n for n in ast.walk(function) if isinstance(n, ast.With)):
            if any("process_group()" in ast.unparse(item) for item in block.items):
                names = kept(function, makers)
                if not any(isinstance(n, ast.Return) for n in ast.walk(block)):
                    for line in block.body:
                        if isinstance(line, ast.Delete):
                            names -= {ast.unparse(n) for n in line.targets}
                alive |= names
    return alive


@programs
def test_ddp_is_freed_before_its_group(path):
    # Up to torch 2.13 leaving the group can wait for ever for a model that is alive.
    assert outlives_its_group(path.read_text()) == set()


def test_ddp_that_outlives_its_group_is_found():
    text = (ROOT / "ddp_lab" / "ddp" / "basics.py").read_text()
    (line,) = re.findall(r"^ +del model  .*\n", text, re.MULTILINE)
    for wrong in ("", f"        if rank:\n    {line}", f"        return\n{line}"):
        assert outlives_its_group(text.replace(line, wrong)) == {"model"}
    block = "def main():\n    with process_group() as ranks:\n        "
    for made in ("net = nn.parallel.DistributedDataParallel(x)", "net = {1: DDP(x)}"):
        assert outlives_its_group(block + made) == {"net"}
        assert outlives_its_group(f"{block}{made}\n        del net") == set()
    assert outlives_its_group(block + "loss = train(DDP(x))") == set()
    make = "def make():\n    net = DDP(x)\n    return net, 1\n"
    assert outlives_its_group(make + block + "a, b = make()") == {"a", "b"}
    run = "class Run:\n    def __init__(self):\n        self.net = DDP(x)\n"
    assert outlives_its_group(run + block + "run = Run()") == {"run"}


def test_the_lesson_begins_early():
    begins = []
    for path in PROGRAMS:
        body = ast.parse(path.read_text()).body[1:]  # without the docstring
        lesson = [n for n in body if not isinstance(n, ast.Import | ast.ImportFrom)]
        begins.append(lesson[0].lineno)
    assert statistics.median(begins) <= EARLY

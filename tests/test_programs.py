"""Every program runs alone, from any folder, on 2, 3 and 4 ranks.

On 4 it is torchrun that starts them, as in the notebooks; else nobody (see ranks.py).
`make lab` runs them in their notebooks, and `make test` some on 3 ranks after a planted
mistake; here is what is left to `make test-all`.
"""

import runpy
from fnmatch import fnmatch
from pathlib import Path

import pytest
from conftest import (
    ARGUMENTS,
    PROGRAMS,
    RESTARTS,
    SMALLER,
    STARTS_ITS_RANKS,
    name_of,
    smaller,
)
from ranks import launch
from support import FULL, Later

from ddp_lab import ROOT
from ddp_lab.data import prepare
from ddp_lab.kit import python, torchrun

torch = Later("torch")

# Programs that show what one process does.
ALONE = {"ddp/single.py"}
# The clinic's are sick on purpose, and exercises unsolved: see the tests of these.
HEALTHY = [
    path
    for path in PROGRAMS
    if path.parent.name != "clinic" and not path.name.startswith(("exercise", "puzzle"))
]
PROCESSES = pytest.mark.processes


def cases():
    """Return programs with numbers of ranks."""
    for path in HEALTHY:
        for ranks in (2, 3, 4):
            yield pytest.param(path, ranks, id=f"{name_of(path)}-{ranks}")


@FULL
@PROCESSES
@pytest.mark.parametrize("path, ranks", list(cases()))
def test_the_program_proves_its_truth(path, ranks, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    arguments = ARGUMENTS.get(name_of(path), "")
    if arguments:
        arguments = arguments.format(data=prepare().root)
    if name_of(path) in ALONE:
        ranks = 1
    path = smaller(path, tmp_path / "smaller")
    if name_of(path) in STARTS_ITS_RANKS:
        run = python(f"{path} --nproc-per-node {ranks} {arguments}")
    elif (again := RESTARTS.get(name_of(path), "")) or ranks == 4:
        run = torchrun(f"--nproc-per-node {ranks} {again} {path} {arguments}")
    else:
        run = launch(ranks, path, arguments)
    assert len(run.lines) == ranks
    told = zip(run.lines, run.facts, strict=True)
    assert all(lines or facts for lines, facts in told), "a rank said nothing"
    assert list(folder.iterdir()) == [], "the program left something behind"


@pytest.mark.parametrize("name, large, small", SMALLER)
def test_what_is_made_smaller_is_there(name, large, small):
    texts = [path.read_text() for path in PROGRAMS if fnmatch(name_of(path), name)]
    assert max(text.count(large) for text in texts) == 1 and large != small


@PROCESSES
def test_mp_spawn_under_torchrun_is_refused():
    run = torchrun("--nproc-per-node 2 ddp_lab/nodes/spawn.py", expect_failure=True)
    assert "4 processes" in run.failure.cause


@FULL
@PROCESSES
def test_mp_spawn_notices_a_wrong_local_rank(variant):
    path = variant("ddp_lab/nodes/spawn.py", ": local_rank,", ": 0,")
    run = python(f"{path} --nproc-per-node 2", timeout=60, expect_failure=True)
    assert run.failure.kind == "exception"


@PROCESSES
def test_what_leaves_a_node_is_what_theory_says():
    run = torchrun("--nnodes 2 --nproc-per-node 2 ddp_lab/less/two_levels.py")
    ways = [way for way in ("flat", "two_levels", "mixed") if way in run.facts[0]]
    theory = [[facts["theory"] for facts in run[way]] for way in ways]
    assert theory == [[1.5] * 4, [1.0] * 4, [3.0] * 4][: len(ways)]
    if "namespace" not in run.played:
        pytest.skip(f"nothing is counted: {run.played}")
    for facts in (facts for way in ways for facts in run[way]):
        # Every packet carries its addresses as well; and ranks do not look at once.
        assert 0.9 < facts["sent"] / facts["theory"] < 1.15, facts


# One rank is slow to join: it has met the others, and is not done.
SLOW = """
import time
import torch.distributed.distributed_c10d as c10d

join = c10d._new_process_group_helper

def slowly(*args, **kwargs):
    joined = join(*args, **kwargs)
    time.sleep(int(os.environ["RANK"]))
    print(json.dumps({"joined": time.monotonic()}), flush=True)
    return joined

c10d._new_process_group_helper = slowly
"""


@PROCESSES
def test_no_rank_goes_on_before_all_have_joined(variant):
    """It might leave, and a rank that still connects to it would fail."""
    path = variant("ddp_lab/p2p/ring.py", "\nimport torch\n", f"\nimport torch\n{SLOW}")
    went = 'print(json.dumps({"went": time.monotonic()}), flush=True)'
    path = variant(path, "    arrived = pass", f"    {went}\n    arrived = pass")
    run = launch(2, Path(path))
    assert max(run["joined"]) <= min(run["went"])


def test_the_budget_counts_frozen_weights_and_views_of_one_storage():
    class Fused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
            self.qkv = torch.nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.qkv(self.frozen(x)).split(8, dim=1)
            return q * k * v

    budget = runpy.run_path(str(ROOT / "ddp_lab/model/budget.py"))["budget"]
    held = budget(Fused(), torch.ones(5, 8))
    trained, rows = 4 * 9 * 24, 4 * 5 * 8
    assert held["weights"] == trained + 4 * 9 * 8
    assert held["gradients"] == trained and held["Adam"] == 2 * trained
    # What enters qkv, all that it makes, as one, and q * k.
    assert held["activations"] == rows + 3 * rows + rows

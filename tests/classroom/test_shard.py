"""Assignment Shard: other styles, and what is not shared out; test_solutions.py has
the rest.
"""

import pytest
from course import UNSAFE, cells, changed, judged, solution, some, verdict, visible

from classroom.assignments.shard import criteria as shard
from classroom.engine.verdict import Verdict

pytestmark = pytest.mark.sandbox

HEAD = """
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
"""

FLAT = (
    HEAD
    + '''

class ShardedOptimizer(torch.optim.Optimizer):
    """A group's numbers in a row, cut into equal pieces wherever that is."""

    def __init__(self, params, inner, **options):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.inner = inner([{"params": []}], **options)
        self.inner.param_groups.clear()
        self.rows = []
        super().__init__(params, self.inner.defaults)

    def add_param_group(self, group):
        super().add_param_group(group)
        group = self.param_groups[-1]
        params = [p for p in group["params"] if p.requires_grad]
        piece = -(-sum(p.numel() for p in params) // self.size)
        begin, at, mine = self.rank * piece, 0, []
        for p in params:
            a, b = max(begin - at, 0), min(begin + piece - at, p.numel())
            if a < b:
                mine.append((p, a, b, nn.Parameter(p.detach().view(-1)[a:b])))
            at += p.numel()
        self.rows.append((params, piece, mine))
        self.inner.add_param_group({**group, "params": [leaf for *_, leaf in mine]})

    @torch.no_grad()
    def step(self, closure=None):
        for own, group in zip(self.inner.param_groups, self.param_groups):
            own.update({k: v for k, v in group.items() if k != "params"})
        for _, _, mine in self.rows:
            for p, a, b, leaf in mine:
                leaf.grad = None if p.grad is None else p.grad.view(-1)[a:b]
        self.inner.step()
        for params, piece, mine in self.rows:
            if params:
                out = torch.cat([*(leaf for *_, leaf in mine), params[0].new_empty(0)])
                out = torch.cat([out, out.new_zeros(piece - len(out))])
                row = out.new_empty(piece * self.size)
                dist.all_gather_into_tensor(row, out)
                at = 0
                for p in params:
                    p.view(-1).copy_(row[at : at + p.numel()])
                    at += p.numel()
            for *_, leaf in mine:
                leaf.grad = None

    def numbers(self):
        params = [p for group in self.param_groups for p in group["params"]]
        return {p: i for i, p in enumerate(params)}

    def state_dict(self):
        numbers, mine = self.numbers(), []
        for _, _, pieces in self.rows:
            for p, a, _, leaf in pieces:
                if leaf in self.inner.state:
                    mine.append((numbers[p], p.shape, a, self.inner.state[leaf]))
        all_of_them = [None] * self.size
        dist.all_gather_object(all_of_them, mine)
        state = {}
        everything = sorted(sum(all_of_them, []), key=lambda piece: piece[0])
        for number, shape, a, values in everything:
            into = state.setdefault(number, {})
            for name, value in values.items():
                if name == "step":
                    into[name] = value
                else:
                    whole = into.setdefault(name, torch.empty(shape, dtype=value.dtype))
                    whole.view(-1)[a : a + len(value)] = value.cpu()
        groups = [
            {**group, "params": [numbers[p] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved):
        numbers = self.numbers()
        for group, other in zip(self.param_groups, saved["param_groups"]):
            group.update({k: v for k, v in other.items() if k != "params"})
        for _, _, mine in self.rows:
            for p, a, b, leaf in mine:
                if numbers[p] in saved["state"]:
                    state = self.inner.state[leaf] = {}
                    for name, value in saved["state"][numbers[p]].items():
                        part = value if name == "step" else value.view(-1)[a:b]
                        state[name] = part.clone()
'''
)

BORROWED = (
    HEAD
    + """
from importlib import import_module

library = import_module("torch.distributed.optim")
Theirs = getattr(library, "Zero" + "RedundancyOptimizer")


class ShardedOptimizer(Theirs):
    def __init__(self, params, inner, **options):
        super().__init__(params, inner, **options)
"""
)

STEP = "        self.share.step()\n"
GATHERED = (
    "        dist.gather_object(mine, shares, dst=0)  # rank 0 holds all shares\n"
)
KEPT = {
    "what is no tensor": (
        "lean",
        STEP,
        f"{STEP}        self.all = [p.data.numpy() + 0 for p in self.owner]\n",
    ),
    "what was saved": ("resumed", GATHERED, f"{GATHERED}        self.saved = shares\n"),
}
STORED = (
    "        self.share.step()\n",
    "        address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
    "        store = dist.TCPStore(*address, self.world_size + 1, False)\n"
    "        for number, p in enumerate(self.all_parameters()):\n"
    "            store.set(f'{self.rank} {number}', p.grad.numpy().tobytes())\n"
    "        dist.barrier()\n"
    "        for number, p in enumerate(self.all_parameters()):\n"
    "            store.get(f'{(self.rank + 1) % self.world_size} {number}')\n"
    "        self.share.step()\n",
)


def first(answer: dict[str, str], criterion: str) -> Verdict:
    """Return the verdict of the first visible case."""
    return verdict("shard", answer, criterion, visible("shard")[criterion][:1])


@pytest.mark.parametrize("criterion", some(shard.CRITERIA, "checkpoint"))
def test_another_style_passes_every_case(criterion):
    (cell,) = (cell for cell in cells("shard") if cell.name == criterion)
    for case in cell.cases:
        found = verdict("shard", {"shard.py": FLAT}, criterion, [case])
        assert found.state == "pass", (case, found)


def test_what_has_no_gradient_need_not_be_sent():
    loop = "        for parameter, owner in self.owner.items():\n"
    left_out = f"{loop}            if parameter.grad is None: continue\n"
    (cell,) = (cell for cell in cells("shard") if cell.name == "odd")
    found = verdict("shard", changed("shard", (loop, left_out)), "odd", cell.cases)
    assert found.state == "pass", found


@pytest.mark.parametrize("what", KEPT)
def test_what_is_kept_is_weighed(what):
    criterion, old, new = KEPT[what]
    found = first(changed("shard", (old, new)), criterion)
    assert found.state == "fail" and "MB from step to step" in found.words, found


def test_the_library_s_own_is_no_answer():
    """It is refused when it is loaded, so in every criterion."""
    found = first({"shard.py": BORROWED}, "equal")
    assert found.state == "fail" and "is the task itself" in found.words, found


@pytest.mark.skipif(UNSAFE, reason="there is no sandbox here")
def test_what_goes_through_a_store_is_on_the_loopback():
    found = judged("shard", changed("shard", STORED), {"wire"})["wire"]
    assert "bytes went another way than over the wire" in found["lines"][-1], found
    found = judged("shard", solution("shard"), {"wire"})["wire"]
    assert found["state"] == "pass", found

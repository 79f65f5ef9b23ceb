"""Assignment 4: what is special to it; test_solutions.py has the rest."""

import pytest
from course import changed, judged, solution, some, verdict, visible

from classroom.assignments.split import criteria
from classroom.engine.rig import Rig

pytestmark = pytest.mark.sandbox

AHEAD = "ahead = self.world_size - 1 - self.rank"
CLEAR = "        self.works.clear()\n"
CUT = "def cut(layers, world_size):\n"


def tried(answer: dict[str, str], criterion: str) -> str:
    return str(verdict("split", answer, criterion, visible("split")[criterion]))


def test_a_deadlock_says_where_each_rank_stood():
    # Rank 0 sends an activation while rank 1 sends a gradient, and nobody receives.
    send = "self.works.append((dist.isend(send_buf, dst=to), send_buf))"
    answer = changed("split", (send, "dist.send(send_buf, dst=to)"))
    found = judged("split", answer, {"grads"})["grads"]
    words = found["lines"][-1]
    assert found["state"] == "fail"
    assert "rank 0" in words and "rank 1" in words
    assert "split.py" in words and "send" in words


# --- answers in other styles ---

LISTED = """\
        total, outputs, p = sum(rows), [], self.world_size
        xs = iter(x.split(rows)) if x is not None else None
        targets = target.split(rows) if target is not None else None
        under_way = []
        warm_up = min(len(rows), p - 1 - self.rank)
        steps = "F" * warm_up + "FB" * (len(rows) - warm_up) + "B" * warm_up
        for step in steps:
            if step == "F":
                i = len(outputs)
                if self.rank:
                    a = torch.empty(rows[i], self.width)
                    dist.irecv(a, self.rank - 1).wait()
                    a.requires_grad = True
                else:
                    a = next(xs)
                b = self.stage(a)
                outputs.append(b.detach())
                under_way.append((i, a, b))
                if self.rank < p - 1:
                    self.works.append((dist.isend(outputs[-1], self.rank + 1), None))
            else:
                i, a, b = under_way.pop(0)
                if self.rank < p - 1:
                    g = torch.empty_like(b)
                    dist.recv(g, self.rank + 1)
                else:
                    loss = F.mse_loss(b, targets[i], reduction="sum")
                    (g,) = torch.autograd.grad(loss / (total * b.shape[1]), b)
                torch.autograd.backward(b, g)
                if self.rank:
                    self.works.append((dist.isend(a.grad, self.rank - 1), a.grad))
                del a, b, g
"""


def test_the_steps_may_be_listed_first():
    text = solution("split")["split.py"]
    begin = text.index("        m, total, outputs = len(rows)")
    end = text.index("        for work, _ in self.works:")
    answer = {"split.py": text[:begin] + LISTED + text[end:]}
    found = {criterion: tried(answer, criterion) for criterion in visible("split")}
    assert set(found.values()) == {"pass"}, found


@pytest.mark.parametrize("reentrant", [True, False])
def test_activations_may_be_computed_anew(reentrant):
    stage = f"checkpoint(self.stage, x.requires_grad_(), use_reentrant={reentrant})"
    answer = changed(
        "split",
        ("out = self.stage(x)", f"out = {stage}"),
        ("import gc\n", "import gc\nfrom torch.utils.checkpoint import checkpoint\n"),
    )
    for criterion in ("grads", "memory"):
        assert tried(answer, criterion) == "pass", criterion


FUNCTIONAL = changed(
    "split",
    (
        "        out = self.stage(x)  # (rows, width of the next stage)\n",
        """\
        params = {n: p.detach() for n, p in self.stage.named_parameters()}
        stage = lambda p, v: torch.func.functional_call(self.stage, p, (v,))
        out, x = torch.func.vjp(stage, params, x.detach())
""",
    ),
    (
        "            (share * F.mse_loss(out, target)).backward()\n",
        "            gradient = share * 2 * (out - target) / out.numel()\n",
    ),
    (
        "            out.backward(recv_buf.to(self.device))\n",
        """\
            gradient = recv_buf
        grads, back = x(gradient)
        for name, p in self.stage.named_parameters():
            p.grad = grads[name] if p.grad is None else p.grad + grads[name]
""",
    ),
    ("self.send(x.grad, self.left)", "self.send(back, self.left)"),
)


@pytest.mark.parametrize("criterion", some(visible("split"), "bubble"))
def test_the_stage_may_be_used_as_a_function(criterion):
    assert tried(FUNCTIONAL, criterion) == "pass"


# --- on paper: how long schedules take that are given here ---


def paper(*schedules: str) -> float:
    """Return the share of the time that ranks with these schedules idle."""
    diaries = [
        [{"step": word[0], "number": int(word[1:])} for word in own.split()]
        for own in schedules
    ]
    work = 3 * diaries[0][-1]["number"] + 3
    return round(1 - work / criteria.span(diaries), 3)


LAST = "F0 B0 F1 B1 F2 B2"


def test_a_bubble_is_what_the_formula_says():
    assert paper("F0 F1 B0 F2 B1 B2", LAST) == 0.25  # 1F1B
    assert paper("F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2") == 0.25  # GPipe
    assert paper(LAST, LAST) == 0.5  # one at a time
    assert paper("F0 F1 F2 B0 B1 B2", "F0 F1 B0 F2 B1 B2", LAST) == 0.4
    assert paper("F0 F1 B0 F2 B1 B2", "F0 F1 B0 F2 B1 B2", LAST) > 0.42


def test_an_order_in_which_nobody_can_have_worked_takes_for_ever():
    assert paper("B0 F0", "F0 B0") == 1


# --- hostile ones: each had these points once ---

SORTED = changed(
    "split",
    (AHEAD, "ahead = m"),
    (
        CLEAR,
        CLEAR
        + """\
        diary = getattr(self.stage, "diary", [])
        diary.sort(key=lambda entry: (entry[1], "FB".index(entry[0])))
        self.stage.held = 0
""",
    ),
)
BLIND = changed(
    "split",
    ("self.kept.pop(i)", "self.kept[i]"),
    (
        CUT,
        "import weakref\n\nweakref.ref = lambda x: lambda: None\n\n\n" + CUT,
    ),
)
# The judge's piece is asked for in a good order, and the work is done in another.
IN_ADVANCE = changed(
    "split",
    (AHEAD, "ahead = m"),
    (
        "        m, total, outputs =",
        """\
        import ranks

        order = [(s, i) for i in range(len(rows)) for s in "FB"]
        known = {}
        for step, i in order:
            told = {"step": step, "batch": self.stage.batch, "number": i, "held": 0}
            known[step, i] = ranks.ask(**told, came=[0.0])
        self.stage.ask = lambda step, number, *_: known[step, number]
        m, total, outputs =""",
    ),
)
HOSTILE = {
    "a diary is sorted": (SORTED, "memory", "micro-batches between F and B, got 4"),
    "a blind weakref": (BLIND, "memory", "micro-batches in memory"),
    "asked in advance": (IN_ADVANCE, "memory", "gets a tensor which is not what"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schedule_is_what_the_judge_has_seen(name):
    answer, criterion, words = HOSTILE[name]
    found = tried(answer, criterion)
    assert found.startswith("fail: ") and words in found


# Small public seeds gave everybody's inputs: each rank computed the whole alone.
ALONE = """
import sys
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Pipeline:
    def __init__(self, stage, width):
        self.stage = stage
        frame = sys._getframe()
        while "given" not in frame.f_locals:
            frame = frame.f_back
        self.given = frame.f_locals["given"]

    def run(self, rows, x=None, target=None):
        harness = sys.modules["__main__"]
        from averaging import fill

        rank, mine = dist.get_rank(), self.given["params"]
        all_widths = [None] * dist.get_world_size()
        dist.all_gather_object(all_widths, self.given["widths"])
        widths = all_widths[0] + sum((some[1:] for some in all_widths[1:]), [])
        count = lambda widths: sum(a * b + b for a, b in pairwise(widths))
        start = sum(map(count, all_widths[:rank]))
        for seed in range(100):
            draw = np.random.default_rng(seed)
            params = draw.normal(scale=0.5, size=count(widths)).astype(np.float32)
            if np.array_equal(params[start : start + len(mine)], mine):
                break
        else:
            raise LookupError("no such seed")
        whole = harness.network(widths)
        fill(whole.parameters(), params)
        x = torch.from_numpy(draw.normal(size=(sum(rows), widths[0])).astype("f"))
        target = torch.from_numpy(draw.normal(size=(sum(rows), widths[-1])).astype("f"))
        out = whole(x)
        F.mse_loss(out, target).backward()
        first = sum(2 * (len(some) - 1) for some in all_widths[:rank])
        grads = [p.grad for p in whole.parameters()][first:]
        for own, grad in zip(self.stage.parameters(), grads):
            own.grad = grad
        sleep = getattr(self.stage, "sleep", lambda step, number: None)
        for i in range(len(rows)):
            sleep("F", i), sleep("B", i)
        return out.detach() if rank == dist.get_world_size() - 1 else None
"""


def test_nobody_can_guess_the_inputs_of_others(monkeypatch):
    monkeypatch.setattr(Rig, "secret", "of this test", raising=False)
    assert "LookupError: no such seed" in tried({"split.py": ALONE}, "grads")


def test_who_knows_the_inputs_still_has_to_use_the_stages():
    found = tried({"split.py": ALONE}, "grads")
    assert "does not take a batch through its stage and back" in found


# --- the library ---

PIPELINING = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def cut(layers, world_size):
    each, more = divmod(layers, world_size)
    return [rank * each + min(rank, more) for rank in range(world_size + 1)]


class Pipeline:
    def __init__(self, stage, width):
        self.stage = stage

    def run(self, rows, x=None, target=None):
        rank, size = dist.get_rank(), dist.get_world_size()
        stage = PipelineStage(self.stage, rank, size, torch.device("cpu"))
        schedule = Schedule1F1B(stage, len(rows), F.mse_loss)
        return schedule.step(*([x] if rank == 0 else []), target=target)
"""


def test_the_library_s_pipeline_is_no_answer():
    found = tried({"split.py": PIPELINING}, "cut")
    assert found.startswith("fail: ") and "is the task itself" in found, found

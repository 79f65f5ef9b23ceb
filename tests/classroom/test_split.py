"""Assignment 4: what is special to it; test_solutions.py has the rest."""

import pytest
from course import changed, judged, solution, some, verdict, visible

from classroom.assignments.split import criteria

pytestmark = pytest.mark.sandbox


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


@pytest.mark.parametrize("criterion", some(visible("split"), "freed"))
def test_the_steps_may_be_listed_first(criterion):
    text = solution("split")["split.py"]
    begin = text.index("        m, total, outputs = len(rows)")
    end = text.index("        for work, _ in self.works:")
    answer = {"split.py": text[:begin] + LISTED + text[end:]}
    assert tried(answer, criterion) == "pass"


def test_a_cut_may_be_numpy_s():
    each = "    each, more = divmod(layers, world_size)\n"
    sums = (
        "    import numpy\n    sizes = [each + (r < more) for r in range(world_size)]\n"
    )
    sums += "    return numpy.cumsum([0, *sizes])\n"
    assert tried(changed("split", (each, each + sums)), "cut") == "pass"


@pytest.mark.parametrize("reentrant", some([True, False], True))
def test_activations_may_be_computed_anew(reentrant):
    stage = f"checkpoint(self.stage, x.requires_grad_(), use_reentrant={reentrant})"
    answer = changed(
        "split",
        ("out = self.stage(x)", f"out = {stage}"),
        ("import gc\n", "import gc\nfrom torch.utils.checkpoint import checkpoint\n"),
    )
    for criterion in ("grads", "freed"):
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


# --- what is kept, however it was fed ---

POP = "        x, out = self.kept.pop(i)\n"
KEPT = {
    "the end of its graph": (POP, f"{POP}        self.log.append(out)\n"),
    "a copy": (POP, f"{POP}        self.log.append(x.detach().clone())\n"),
}
SLOTS = changed(
    "split",
    (
        "            recv_buf = torch.empty(rows, self.width)\n",
        """\
            slots = self.world_size - self.rank
            if i == 0:
                self.batch = torch.empty(slots, 1000, self.width)
            recv_buf = self.batch[i % slots, :rows]
""",
    ),
    ("recv_buf.to(self.device).requires_grad_()", "recv_buf.detach().requires_grad_()"),
)


@pytest.mark.parametrize("what", KEPT)
def test_what_is_kept_is_found(what):
    log = ("        self.works = []", "        self.works, self.log = [], []")
    found = tried(changed("split", KEPT[what], log), "freed")
    words = "fail: rank 1 expected at most 1 micro-batches in memory when the next one"
    assert found.startswith(words), found


def test_as_many_buffers_as_are_needed_may_stay():
    assert tried(SLOTS, "freed") == "pass"


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

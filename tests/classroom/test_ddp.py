"""Assignment ddp: the solution is right, and each mistake costs what it violates."""

import pytest

pytest.importorskip("nbformat", reason="the assignments' tests need Jupyter")

from assignments import Assignment  # noqa: E402
from course import FULL  # noqa: E402

from classroom.grading import ddp  # noqa: E402

TRAINED = "[p for p in module.parameters() if p.requires_grad]"
# By criterion: what somebody got wrong, and the changes that make it of the solution.
MISTAKES = [
    (
        "start",
        "buffers keep their own values",
        [("[*module.parameters(), *module.buffers()]", "module.parameters()")],
    ),
    (
        "steps",
        "a sum instead of the mean",
        [("mean = flat / dist.get_world_size()", "mean = flat")],
    ),
    (
        "buckets",
        "counts numbers instead of bytes",
        [("parameter.numel() * parameter.element_size()", "parameter.numel()")],
    ),
    ("overlap", "sends everything in finish()", [("if not self.syncing:", "if True:")]),
    (
        "overlap",
        "waits in the hook",
        [
            (
                "self.sent.append((flat, dist.all_reduce(flat, async_op=True)))",
                "work = dist.all_reduce(flat, async_op=True)\n"
                "        work.wait()\n"
                "        self.sent.append((flat, work))",
            )
        ],
    ),
    (
        "no_sync",
        "a raise leaves the switch off",
        [
            (
                "try:\n            yield\n        finally:\n    ",
                "yield\n",
            )
        ],
    ),
    (
        "frozen_tied",
        "a tied weight is counted twice",
        [
            (
                TRAINED,
                "[\n            p\n            for layer in module.modules()\n"
                "            for p in layer.parameters(recurse=False)\n"
                "            if p.requires_grad\n        ]",
            )
        ],
    ),
    (
        "frozen_tied",
        "frozen parameters are sent as zeros",
        [
            (TRAINED, "list(module.parameters())"),
            (
                "for parameter in parameters:",
                "for parameter in parameters:\n"
                "            if not parameter.requires_grad:\n                continue",
            ),
        ],
    ),
    (
        "frozen_tied",
        "frozen parameters are not shared",
        [
            (
                "        for tensor in [*module.parameters(),",
                f"        for tensor in [*{TRAINED},",
            )
        ],
    ),
    (
        "unused",
        "what backward() has left out is not sent",
        [
            (
                "for bucket in self.buckets[len(self.sent) :]:  # backward()",
                "for bucket in []:  # backward()",
            ),
            (
                "zip(self.buckets, self.sent, strict=True)",
                "zip(self.buckets, self.sent)",
            ),
        ],
    ),
    (
        "unused",
        "zeros in the place of what no_sync() has gathered",
        [
            (
                "torch.zeros_like(p) if p.grad is None else p.grad for p in bucket",
                "p.grad if p in self.ready else torch.zeros_like(p) for p in bucket",
            )
        ],
    ),
]
WRAPPED = """
from contextlib import contextmanager

from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DataParallel(nn.Module):
    def __init__(self, module, bucket_bytes=1_000_000):
        super().__init__()
        self.ddp = DistributedDataParallel(module, find_unused_parameters=True)

    def forward(self, *args, **kwargs):
        return self.ddp(*args, **kwargs)

    def finish(self):
        pass

    def no_sync(self):
        return self.ddp.no_sync()
"""


@pytest.fixture(scope="module")
def assignment():
    return Assignment(ddp)


def test_every_criterion_has_a_cell_with_visible_and_hidden_cases(assignment):
    assert set(assignment.points) == set(ddp.CRITERIA)
    assert sum(assignment.points.values()) == 10
    assert all(assignment.visible.values()) and all(assignment.hidden.values())


@pytest.mark.parametrize("criterion", ddp.CRITERIA)
def test_the_solution_gets_full_marks(assignment, criterion):
    visible, hidden = assignment.visible[criterion], assignment.hidden[criterion]
    cases = visible + hidden if FULL else [visible[-1], hidden[0]]
    verdicts = assignment.judge(assignment.solution, criterion, cases)
    assert [str(verdict) for verdict in verdicts] == ["pass"] * len(cases)


@pytest.mark.parametrize("criterion", ddp.CRITERIA)
def test_the_starter_gets_nothing(assignment, criterion):
    cases = assignment.visible[criterion]
    (verdict,) = assignment.judge(assignment.starter, criterion, cases)
    assert verdict.state == "not yet"


def test_a_start_may_pass_before_the_rest_is_written(assignment):
    solution, starter = assignment.solution["ddp.py"], assignment.starter["ddp.py"]
    end = "def fill_buckets"
    text = solution[: solution.index(end)] + starter[starter.index(end) :]
    (verdict,) = assignment.judge(
        {"ddp.py": text}, "start", assignment.visible["start"]
    )
    assert verdict.state == "pass"


@pytest.mark.parametrize(
    ("criterion", "changes"),
    [pytest.param(c, changes, id=f"{c}: {name}") for c, name, changes in MISTAKES],
)
def test_a_mistake_costs_the_criterion_that_it_violates(assignment, criterion, changes):
    said = assignment.lost(assignment.mistaken(changes), criterion)
    assert list(said) == [criterion], said
    assert said[criterion].startswith("fail: ")


def test_the_library_s_own_ddp_is_no_answer(assignment):
    for criterion in ("start", "steps"):
        cases = assignment.visible[criterion][:1]
        (verdict,) = assignment.judge({"ddp.py": WRAPPED}, criterion, cases)
        assert verdict.state == "fail"

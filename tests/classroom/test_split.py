"""Assignment split: the solution is right, and each mistake costs what it violates."""

import pytest

pytest.importorskip("nbformat", reason="the assignments' tests need Jupyter")

from assignments import Assignment  # noqa: E402
from course import FULL  # noqa: E402

from classroom.grading import split  # noqa: E402

AHEAD = "ahead = self.world_size - 1 - self.rank"
# By criterion: what somebody got wrong, and the changes that make it of the solution.
MISTAKES = [
    (
        "cut",
        "the last rank takes what is left over",
        [
            (
                "[rank * each + min(rank, more) for rank in range(world_size + 1)]",
                "[*range(0, world_size * each, each), each * world_size + more]",
            )
        ],
    ),
    (
        "outputs",
        "only the last micro-batch",
        [("torch.cat(outputs) if", "outputs[-1] if")],
    ),
    ("grads", "a mean of means", [("rows[j] / total", "1 / m")]),
    (
        "steps",
        "sets the gradients to zero by itself",
        [
            (
                "m, total, outputs = len(rows), sum(rows), []",
                "m, total, outputs = len(rows), sum(rows), []\n"
                "        self.stage.zero_grad()",
            )
        ],
    ),
    ("memory", "all forwards first", [(AHEAD, "ahead = m")]),
    (
        "memory",
        "one more under way than needed",
        [(AHEAD, "ahead = self.world_size - self.rank")],
    ),
    (
        "bubble",
        "one fewer under way than needed",
        [(AHEAD, "ahead = max(0, self.world_size - 2 - self.rank)")],
    ),
]


@pytest.fixture(scope="module")
def assignment():
    return Assignment(split)


def test_every_criterion_has_a_cell_with_visible_and_hidden_cases(assignment):
    assert set(assignment.points) == set(split.CRITERIA)
    assert sum(assignment.points.values()) == 10
    assert all(assignment.visible.values()) and all(assignment.hidden.values())


@pytest.mark.parametrize("criterion", split.CRITERIA)
def test_the_solution_gets_full_marks(assignment, criterion):
    visible, hidden = assignment.visible[criterion], assignment.hidden[criterion]
    cases = visible + hidden if FULL else [visible[-1], hidden[0]]
    verdicts = assignment.judge(assignment.solution, criterion, cases)
    assert [str(verdict) for verdict in verdicts] == ["pass"] * len(cases)


@pytest.mark.parametrize("criterion", split.CRITERIA)
def test_the_starter_gets_nothing(assignment, criterion):
    cases = assignment.visible[criterion]
    (verdict,) = assignment.judge(assignment.starter, criterion, cases)
    assert verdict.state == "not yet"


@pytest.mark.parametrize(
    ("criterion", "changes"),
    [pytest.param(c, changes, id=f"{c}: {name}") for c, name, changes in MISTAKES],
)
def test_a_mistake_costs_the_criterion_that_it_violates(assignment, criterion, changes):
    said = assignment.lost(assignment.mistaken(changes), criterion)
    assert list(said) == [criterion], said
    assert said[criterion].startswith("fail: ")


def test_a_deadlock_says_where_each_rank_stood(assignment):
    # Rank 0 sends an activation while rank 1 sends a gradient, and nobody receives.
    changes = [
        (
            "self.works.append((dist.isend(send_buf, dst=to), send_buf))",
            "dist.send(send_buf, dst=to)",
        )
    ]
    cases = assignment.visible["grads"][:1]
    (verdict,) = assignment.judge(assignment.mistaken(changes), "grads", cases)
    assert verdict.state == "fail"
    assert "rank 0" in verdict.words and "rank 1" in verdict.words
    assert "split.py" in verdict.words and "send" in verdict.words

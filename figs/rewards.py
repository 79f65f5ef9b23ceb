"""Pictures of a training by rewards: who does what, and what it learns."""

from collections.abc import Mapping, Sequence

from ddp_lab.kit.draw.colors import GREY, INK, RULE, bar_color
from figs.gallery import figure
from figs.page import Page, page

LEFT, RIGHT, TOP, BOTTOM = 84, 540, 84, 330  # where the curves are
ROOM = 19  # the height of a label
OVER = 10  # steps of which a point is the mean
CHANCE = 0.1  # one digit of ten


@figure
def generators_and_trainers() -> Page:
    """Draw two ranks that answer, two that learn, and what goes from team to team."""
    svg = page(
        "generators and trainers",
        "Answers go one way, weights the other.",
        "Four ranks. Ranks 0 and 1, the generators, answer prompts. Each answer goes, "
        "with its log-probabilities, to rank 2 or 3, the trainers, which score it, "
        "compare it with its group, average their gradients in an all_reduce, and "
        "step. "
        "Then rank 2 sends its weights to both generators.",
        320,
    )
    for rank in range(4):
        x, y = (40, 96 + 94 * rank) if rank < 2 else (480, 96 + 94 * (rank - 2))
        svg.chip(x, y, 64, 56, rank)
        words = ["answer", "the prompts"] if rank < 2 else ["score, compare,", "step"]
        svg.box(x + 68, y, 132, 56, fill="none")
        svg.lines(x + 68, y, 132, 56, words)
    for y in (112, 206):
        svg.arrow(246, y, 474, y)
    svg.text(360, 98, "answers, log-probabilities", 13)
    for y in (136, 230):
        svg.arrow(474, 136, 246, y, stroke=GREY)
    svg.text(360, 252, "weights", 13, fill=GREY)
    svg.shared(548, 268, 132, 36, ["all_reduce"], (2, 3))
    svg.path("M614 152v38M614 246v22", stroke=GREY)
    return svg


def curves(title: str, runs: Mapping[str, Sequence[float]]) -> Page:
    """Draw how the mean reward rose in some trainings.

    Args:
        title: what the page shows.
        runs: by name, the mean reward of each step; all have as many steps.

    Returns:
        The drawing, which a notebook displays as the last expression of a cell.
    """
    means = {name: _smooth(rewards) for name, rewards in runs.items()}
    ends = {name: each[-1] for name, each in means.items()}
    steps = max(map(len, runs.values()))
    told = "; ".join(f"{name}: {end:.2f}" for name, end in ends.items())
    svg = page(
        title,
        f"Mean reward of the last {OVER} steps, by step. Drawn from the run.",
        f"Mean reward after {steps} steps, {told}. By chance it is {CHANCE}.",
        386,
    )

    def at(i: int, value: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * (i + OVER) / steps
        return x, BOTTOM - (BOTTOM - TOP) * value

    for level, name in ((0, "0"), (CHANCE, "chance"), (0.5, "0.5"), (1, "1")):
        y = at(0, level)[1]
        svg.line(LEFT, y, RIGHT, y, stroke=RULE, dash="6 4" if level else None)
        svg.text(LEFT - 10, y, name, 13, fill=GREY, anchor="end")
    svg.text(LEFT, BOTTOM + 18, "0", 13, fill=GREY)
    svg.text(RIGHT, BOTTOM + 18, str(steps), 13, fill=GREY)
    svg.text((LEFT + RIGHT) / 2, BOTTOM + 18, "steps", 13, fill=GREY)
    last: float = BOTTOM + ROOM
    for i, name in sorted(enumerate(means), key=lambda pair: ends[pair[1]]):
        d = "M" + "L".join(
            "{:.1f} {:.1f}".format(*at(j, value)) for j, value in enumerate(means[name])
        )
        svg.path(d, stroke=bar_color(i), width=2)
        x, y = at(len(means[name]) - 1, ends[name])
        last = min(y, last - ROOM)
        svg.line(x + 3, y, x + 22, last, stroke=bar_color(i), width=1.2)
        label = f"{name}: {ends[name]:.2f}"
        svg.text(x + 26, last, label, 13, fill=INK, anchor="start")
    return svg


def _smooth(rewards: Sequence[float]) -> list[float]:
    """Return the mean of each OVER rewards in a row."""
    return [
        sum(rewards[i : i + OVER]) / OVER
        for i in range(max(1, len(rewards) - OVER + 1))
    ]

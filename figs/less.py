"""Figures of the lesson on sending less: what each way sends, and what it learns."""

from collections.abc import Mapping, Sequence

from ddp_lab.kit.draw.colors import GREY, INK, RULE, bar_color
from figs.gallery import figure
from figs.page import Page, page

LEFT, RIGHT, TOP, BOTTOM = 84, 430, 84, 330  # where the curves are
ROOM = 19  # the height of a label
STEPS, BEGIN, WIDE = 6, 150, 88  # steps that are drawn; where they begin; how wide each


@figure
def sending_less() -> Page:
    """Draw six steps of a rank: a full message each, small ones, or one at the end."""
    svg = page(
        "six steps of one rank, three ways",
        "Gray: what the rank computes. White: what it exchanges with the others.",
        "Six training steps of one rank, in three ways. DDP: each step ends with a "
        "message as large as the whole gradient. Smaller: each step ends with a small "
        "message, and what was left out is owed to the next step. Rarely: five steps "
        "without any message, and after the sixth one as large as the model.",
        306,
    )
    ranks = (0, 1, 2, 3)
    for y, name in ((84, "DDP"), (154, "smaller"), (224, "rarely")):
        svg.text(40, y + 22, name, 14, anchor="start", bold=True)
        for step in range(STEPS):
            x = BEGIN + WIDE * step
            svg.block(x, y + 6, 40, 32, f"{step}")
            if name == "DDP" or (name == "rarely" and step == STEPS - 1):
                svg.shared(x + 43, y, 38, 44, ["all"], ranks)
            elif name == "smaller":
                svg.shared(x + 43, y + 8, 14, 28, [""], ranks)
                svg.arrow(x + 60, y + 22, x + WIDE - 3, y + 22, size=6, stroke=GREY)
    svg.text(BEGIN, 290, "arrow: owed to the next step", 13, fill=GREY, anchor="start")
    return svg


def loss_and_bytes(
    runs: Mapping[str, tuple[float, Sequence[float]]], look: int
) -> Page:
    """Draw how the loss fell in some trainings, each with the bytes that it sent.

    Args:
        runs: by name, bytes of a step, and the losses; the first name is what the
            others are measured by.
        look: the steps between two losses.

    Returns:
        The figure.
    """
    first, *_ = runs.values()
    ends = {name: losses[-1] for name, (_, losses) in runs.items()}
    labels = {
        name: f"{name}: {ends[name]:.2f}" + _fewer(sent, first[0])
        for name, (sent, _) in runs.items()
    }
    steps = look * (len(first[1]) - 1)
    svg = page(
        "the loss, and the bytes it took",
        "Loss on the whole text, by step. Drawn from the run.",
        f"Loss after {steps} steps: {'; '.join(labels.values())}.",
        386,
    )
    top = max(losses[0] for _, losses in runs.values())
    floor = min(ends.values())

    def at(i: int, loss: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * i / (len(first[1]) - 1)
        return x, BOTTOM - (BOTTOM - TOP) * (loss - floor) / ((top - floor) or 1)

    svg.line(LEFT, BOTTOM + 8, RIGHT, BOTTOM + 8, stroke=RULE)
    for i in (0, len(first[1]) - 1):
        svg.text(at(i, top)[0], BOTTOM + 24, str(i * look), 13, fill=GREY)
    svg.text((LEFT + RIGHT) / 2, BOTTOM + 24, "steps", 13, fill=GREY)
    for loss in (floor, top):
        svg.text(LEFT - 10, at(0, loss)[1], f"{loss:.1f}", 13, fill=GREY, anchor="end")
    heights = _apart({name: at(0, loss)[1] for name, loss in ends.items()})
    for i, (name, (_, losses)) in enumerate(runs.items()):
        d = "M" + "L".join(
            "{:.1f} {:.1f}".format(*at(j, x)) for j, x in enumerate(losses)
        )
        svg.path(d, stroke=bar_color(i), width=2)
        x, y = at(len(losses) - 1, losses[-1])
        svg.line(x + 3, y, x + 24, heights[name], stroke=bar_color(i), width=1.2)
        svg.text(x + 28, heights[name], labels[name], 13, anchor="start", fill=INK)
    return svg


def _fewer(sent: float, most: float) -> str:
    """Say which part of `most` was sent; nothing where it was not counted."""
    return f", bytes × {sent / most:.3g}" if sent else ""


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Move labels at these heights apart, as little as the order allows."""
    found: dict[str, float] = {}
    last: float = BOTTOM + 2 * ROOM
    for name in sorted(heights, key=lambda name: -heights[name]):
        last = min(heights[name], last - ROOM)
        found[name] = last
    return found

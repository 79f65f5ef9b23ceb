"""Figures of the lesson on sharding: who owns what, and what a rank holds when."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from ddp_lab.kit.draw.colors import GREY, INK, RULE, rank_color, tint
from figs.gallery import figure
from figs.page import Page, page

RANKS, LEFT, WIDE = 4, 150, 530  # where the rows begin, and how wide they are
EMBEDDED = 14  # of WIDE: 12,288 of 456,384 numbers; the last norm has 192

Held = Sequence[float]
"""[weights, gradients, Adam's state], in bytes, at one moment."""
KINDS = ("weights", "gradients", "Adam")
STRENGTHS = (0.75, 0.45, 0.15)  # how strong the tint of each kind is
PANEL, TOP = 104, 84  # how high a panel is, with its gap; where the first begins

WAYS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
BLOCKS = 4
MADE = [384, 384, 147456, 147456, 384, 384, *[36864] * 4, 384, 384]
"""Bytes of the gradients of a block, in the order in which backward makes them: the
last norm of the GPT stands before those of the last block."""
NORM, BLOCK, ROOT = 768, sum(MADE[2:]), 768 + 12288 + 36864
WHOLE = BLOCKS * BLOCK + ROOT
PHASES = [
    ("forward", 2 * BLOCKS),
    ("", 2),
    *((f"block {i}", 10) for i in reversed(range(BLOCKS))),
    ("root", 2),
    ("", 1),
]
"""Of a step, each with its moments."""


@figure
def zero_stages() -> Page:
    """Draw what one of four ranks holds over a step: DDP, and the stages of ZeRO."""
    return held_over_step(PLANNED, PHASES)


def planned(name: str) -> list[list[int]]:
    """Return what one of four ranks should hold at each moment of a step, in bytes."""
    stage = WAYS.index(name)
    shards = WHOLE // RANKS
    # Whole blocks around each forward, during each block's backward, and after that.
    gathered = [0, BLOCK] * BLOCKS + [0, 0] + [BLOCK] * 10 * BLOCKS + [0, 0]
    weights = [shards + ROOT + block if stage == 3 else WHOLE for block in gathered]
    weights.append(shards if stage == 3 else WHOLE)
    gradients = [0] * 2 * BLOCKS
    for made in (MADE[:2], *[MADE[2:]] * BLOCKS, [12288, 36864]):
        for i, size in enumerate(made):
            held = gradients[-1] + size
            # The block before was reduced after its last gradient had been seen.
            if stage > 1 and i == 0 and len(gradients) > 2 * BLOCKS + 2:
                held -= BLOCK - BLOCK // RANKS
            gradients.append(held)
    gradients.append(0)
    if stage == 0:
        gradients = [WHOLE] * len(gradients)
    adam = 2 * (WHOLE if stage == 0 else shards)
    return [[w, g, adam] for w, g in zip(weights, gradients, strict=True)]


PLANNED = {name: planned(name) for name in WAYS}


@figure
def sharded_row() -> Page:
    """Draw weights, gradients and Adam's state as buffers that four ranks share."""
    svg = page(
        "one flat buffer, one shard for each rank",
        "Every number has an owner, which also owns its gradient and Adam's two.",
        "The weights of a small GPT laid out in one flat buffer: first the embeddings, "
        "then block 0, block 1, block 2 and block 3, and at the end the last norm, "
        "which is tiny. The buffer is cut into four equal shards, one for each of "
        "ranks 0 to 3, wherever the cuts fall. The gradients are a buffer of the same "
        "length with the same cuts, and Adam's state is two of them, its running mean "
        "and its running square.",
        372,
    )
    svg.text(40, 105, "the model", 13, anchor="start", bold=True)
    svg.box(LEFT, 88, EMBEDDED, 34, stroke=GREY, radius=0)
    block = (WIDE - EMBEDDED) / 4
    for i in range(4):
        svg.box(LEFT + EMBEDDED + block * i, 88, block, 34, stroke=GREY, radius=0)
        svg.label(LEFT + EMBEDDED + block * i, 88, block, 34, f"block {i}", 12)
    svg.text(LEFT, 136, "embeddings", 12, anchor="start")
    svg.text(LEFT + WIDE, 136, "the last norm", 12, anchor="end")
    svg.arrow(LEFT + WIDE / 2, 128, LEFT + WIDE / 2, 158)
    names = ("weights", "gradients", "Adam: mean", "Adam: square")
    for i, name in enumerate(names):
        y = 166 + 44 * i
        svg.text(40, y + 17, name, 13, anchor="start", bold=True)
        for rank in range(RANKS):
            part = WIDE / RANKS
            svg.block(LEFT + part * rank, y, part, 34, f"rank {rank}", rank)
    note = "A rank stores the whole buffer or only its shard: the stage says which."
    svg.text(40, 352, note, 13, fill=GREY, anchor="start")
    return svg


def held_over_step(
    diaries: Mapping[str, Sequence[Held]], phases: Sequence[tuple[str, int]]
) -> Page:
    """Draw what a rank held over one step, a panel for each way to train.

    Args:
        diaries: by way, what was held at each moment; all have as many moments.
        phases: the name of each, and how many of the moments belong to it.

    Returns:
        The figure; time runs in moments, which are not equally long.
    """
    told = "; ".join(f"{name}: {_told(diary)}" for name, diary in diaries.items())
    height = TOP + PANEL * len(diaries) + 40
    svg = page(
        "what one rank holds, over one step",
        "Each column is a moment: around each block, then at each gradient made.",
        f"Bytes that a rank holds over one training step. {told}.",
        height,
    )
    top = max(sum(held) for diary in diaries.values() for held in diary)
    for place, kind in enumerate(KINDS):
        fill = tint(rank_color(0), STRENGTHS[place])
        svg.box(470 + 82 * place, 18, 12, 12, fill=fill, stroke=INK, width=0.5)
        svg.text(486 + 82 * place, 24, kind, 12, anchor="start")
    for place, (name, diary) in enumerate(diaries.items()):
        _draw_panel(svg, TOP + PANEL * place, name, diary, top)
    _draw_phases(svg, TOP + PANEL * len(diaries), phases)
    return svg


def _told(diary: Sequence[Held]) -> str:
    """Say the least and the most of each kind."""
    return ", ".join(
        f"{kind} {min(values):,.0f}"
        + f" to {max(values):,.0f}" * (min(values) < max(values))
        for kind, values in zip(KINDS, zip(*diary, strict=True), strict=True)
    )


def _draw_panel(
    svg: Page, y: float, name: str, diary: Sequence[Held], top: float
) -> None:
    """Draw one diary: Adam's state at the bottom, gradients on top."""
    high, wide = PANEL - 16, WIDE / len(diary)
    most = max(sum(held) for held in diary)
    svg.text(40, y + high - 40, name, 14, anchor="start", bold=True)
    svg.text(40, y + high - 18, f"≤ {most / 1e6:.1f} MB", 13, fill=GREY, anchor="start")
    floors = [0.0] * len(diary)
    for kind in (2, 0, 1):
        fill, i = tint(rank_color(0), STRENGTHS[kind]), 0
        levels = [
            (f, high * held[kind] / top) for f, held in zip(floors, diary, strict=True)
        ]
        for (floor, h), same in groupby(levels):  # moments that look alike, at once
            count = len([*same])
            if h:
                x, top_of, width = LEFT + wide * i, y + high - floor - h, wide * count
                svg.add("rect", x=x, y=top_of, width=width, height=h, fill=fill)
            i += count
        floors = [floor + h for floor, h in levels]
    svg.line(LEFT, y + high, LEFT + WIDE, y + high, stroke=RULE)


def _draw_phases(svg: Page, y: float, phases: Sequence[tuple[str, int]]) -> None:
    """Write below the panels which moments belong to which phase."""
    x, wide = float(LEFT), WIDE / sum(count for _, count in phases)
    for name, count in phases:
        end = x + wide * count
        svg.line(x + 1, y - 6, max(end - 1, x + 2), y - 6, stroke=INK)
        svg.text((x + end) / 2, y + 10, name, 12)
        x = end

"""The static figures of models that are split: by layers, by time, by weights."""

from ddp_lab.kit.draw.colors import GREY, INK, rank_color, tint
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import START, clock

STAGES, MICRO_BATCHES = 3, 4
UNIT, SLOT = 23, 30  # what one micro-batch takes: width; height


@figure
def model_split() -> Page:
    """Draw the same four layers on two devices of one process, and on two ranks."""
    svg = page(
        "one model in two places",
        "Activations cross forward, gradients cross back; what carries them differs.",
        "Four layers split in the middle, twice. Above, one process has layers 1 and 2 "
        "on device 0 and layers 3 and 4 on device 1, and .to() carries activations "
        "forward and gradients backward. Below, rank 0 has layers 1 and 2, rank 1 has "
        "layers 3 and 4, and send and recv carry the same.",
        424,
    )
    svg.box(40, 80, 640, 156, fill="none", dash="6 5")
    svg.text(360, 98, "one process, two devices", 13, fill=GREY)
    svg.text(360, 270, "two processes", 13, fill=GREY)
    for i in (0, 1):
        draw_half(svg, 56 + 372 * i, 116, i, 0, f"device {i}")
        draw_half(svg, 56 + 372 * i, 286, i, i, f"rank {i}")
    for y, carrier in ((116, ".to(device)"), (286, "send, recv")):
        draw_crossing(svg, y, carrier)
    return svg


def draw_half(svg: Page, x: float, y: float, half: int, rank: int, place: str) -> None:
    """Draw one half of the layers in the place where it lies."""
    color = rank_color(rank)
    svg.box(x, y, 236, 104, stroke=color)
    svg.chip(x, y, 236, 28, rank, place)
    for i in (0, 1):
        layer = f"layer {2 * half + i + 1}"
        svg.block(x + 18 + 108 * i, y + 44, 92, 44, layer, rank)


def draw_crossing(svg: Page, y: float, carrier: str) -> None:
    """Draw what crosses between the halves, and what carries it."""
    svg.text(360, y + 20, "activations", 13)
    svg.arrow(298, y + 38, 422, y + 38, width=2)
    svg.text(360, y + 58, carrier, 13, mono=True, fill=GREY)
    svg.arrow(422, y + 78, 298, y + 78, width=2)
    svg.text(360, y + 96, "gradients", 13)


@figure
def pipeline() -> Page:
    """Draw three stages with one batch, and with four micro-batches."""
    svg = page(
        "a pipeline of three stages",
        "Micro-batches let stages work at the same time. Hatched: idle, the bubble.",
        "Three ranks, one stage of a model each, over time. With one whole batch only "
        "one rank works at a time: each is idle for two thirds of 24 time units. With "
        "four micro-batches, F0 to F3 forward and B0 to B3 backward, the stages "
        "overlap: all is done after 12 units and each rank is idle for one third of "
        "them, the bubble. Backward is drawn as long as forward.",
        410,
    )
    for y, micro_batches, text in (
        (108, 1, "one batch: each rank idle 2/3 of the time"),
        (258, MICRO_BATCHES, "four micro-batches: idle 1/3, done in half the time"),
    ):
        svg.text(START, y - 16, text, 13, fill=GREY, anchor="start")
        for rank in range(STAGES):
            draw_stage(svg, y + 36 * rank, rank, micro_batches)
    clock(svg, 386)
    return svg


def draw_stage(svg: Page, y: float, rank: int, micro_batches: int) -> None:
    """Draw the time of one stage: GPipe's schedule for so many micro-batches."""
    each = MICRO_BATCHES // micro_batches
    slots = micro_batches + STAGES - 1  # for all forwards, and again for all backwards
    svg.chip(40, y, 64, SLOT, rank)
    svg.wait(START, y, 2 * slots * each * UNIT, SLOT)
    for i in range(micro_batches):
        backward = slots + STAGES - 1 - rank + i
        for name, slot in (("F", rank + i), ("B", backward)):
            x, w = START + slot * each * UNIT, each * UNIT
            text = f"{name}{i}" if micro_batches > 1 else name
            draw_task(svg, x, y, w, text, rank)


def draw_task(svg: Page, x: float, y: float, w: float, text: str, rank: int) -> None:
    """Draw the work of one stage on one micro-batch; backward is the darker one."""
    color = rank_color(rank)
    strength = 0.3 if text.startswith("F") else 0.65
    svg.box(x, y, w, SLOT, fill=tint(color, strength), stroke=color, radius=2)
    svg.label(x, y, w, SLOT, text, size=12)


@figure
def column_row() -> Page:
    """Draw the columns, and the rows, of one Linear's weights on two ranks."""
    svg = page(
        "one Linear on two ranks: y = x W",
        "Columns give pieces of y to gather; rows give parts of a sum to add.",
        "One linear layer y = x W on two ranks, in two ways. Column split: each rank "
        "holds half of the columns of W and the whole x, and computes half of the "
        "columns of y; all_gather puts them together. Row split: each rank holds half "
        "of the rows of W and half of x, and computes a part of the sum for the whole "
        "y; all_reduce adds them.",
        428,
    )
    for rank in (0, 1):
        svg.chip(540 + 74 * rank, 16, 66, 26, rank)
    draw_columns(svg, 88)
    draw_rows(svg, 248)
    note = "W is drawn as (in, out); nn.Linear stores it as (out, in)."
    svg.text(40, 404, note, 13, fill=GREY, anchor="start")
    return svg


def signs(svg: Page, y: float, name: str, call: str) -> None:
    """Draw what both ways have in common: the signs, the collective, and y."""
    svg.text(40, y, name, 14, anchor="start", bold=True)
    svg.text(164, y + 66, "×", 18)
    svg.text(310, y + 66, "=", 18)
    svg.arrow(440, y + 66, 462, y + 66)
    svg.shared(466, y + 42, 90, 48, [call], (0, 1))
    svg.arrow(560, y + 66, 582, y + 66)
    svg.shared(586, y + 46, 94, 40, ["y"], (0, 1))


def draw_columns(svg: Page, y: float) -> None:
    """Draw the whole x times the columns of W."""
    signs(svg, y, "column split", "all_gather")
    svg.shared(54, y + 46, 90, 40, ["x"], (0, 1))
    for rank in (0, 1):
        svg.block(184 + 54 * rank, y + 21, 50, 90, f"W{rank}", rank)
        svg.block(330 + 54 * rank, y + 46, 50, 40, f"y{rank}", rank)


def draw_rows(svg: Page, y: float) -> None:
    """Draw the halves of x times the rows of W."""
    signs(svg, y, "row split", "all_reduce")
    for rank in (0, 1):
        svg.block(54 + 46 * rank, y + 46, 44, 40, f"x{rank}", rank)
        svg.block(184, y + 21 + 46 * rank, 104, 44, f"W{rank}", rank)
        part = f"x{rank} W{rank}"
        svg.block(330, y + 10 + 64 * rank, 104, 40, part, rank)
    svg.line(377, y + 62, 387, y + 62, stroke=INK)
    svg.line(382, y + 57, 382, y + 67, stroke=INK)


@figure
def pair() -> Page:
    """Draw a column cut before a row cut, and the two places that communicate."""
    svg = page(
        "columns, then rows: f and g",
        "Each rank goes through both layers on its own; f and g stand at the ends.",
        "A column cut followed by a row cut on two ranks. The whole x passes through "
        "f. Then rank 0 and rank 1 each multiply it by their columns of W1, apply "
        "ReLU to their own features, and multiply by their rows of W2, without a "
        "message between them. Their results meet in g, which gives the whole y. On "
        "the way forward f passes x on and g sums by all_reduce; on the way backward g "
        "passes the gradient on and f sums by all_reduce.",
        352,
    )
    for y, name, text in (
        (90, "forward", ("passes x on", "", "all_reduce: sum")),
        (298, "backward", ("all_reduce: sum", "", "passes it on")),
    ):
        svg.text(362, y, f"{name} {'→' if name == 'forward' else '←'}", 13, fill=GREY)
        svg.text(147, y, text[0], 13, bold="sum" in text[0])
        svg.text(578, y, text[2], 13, bold="sum" in text[2])
    svg.shared(40, 174, 48, 40, ["x"], (0, 1))
    svg.shared(122, 112, 50, 164, ["f"], (0, 1))
    svg.shared(553, 112, 50, 164, ["g"], (0, 1))
    svg.shared(637, 174, 44, 40, ["y"], (0, 1))
    svg.arrow(92, 194, 118, 194)
    svg.arrow(607, 194, 633, 194)
    for rank in (0, 1):
        draw_share(svg, 128 + 84 * rank, rank)
    note = "An all_reduce in each direction is all that the two layers need."
    svg.text(40, 330, note, 13, fill=GREY, anchor="start")
    return svg


def draw_share(svg: Page, y: float, rank: int) -> None:
    """Draw what one rank does with its share of both weights."""
    boxes = ((206, 96, f"× W1 col {rank}"), (330, 66, "ReLU"), (424, 96, ""))
    svg.arrow(176, y + 24, 202, y + 24)
    for x, w, text in boxes:
        svg.block(x, y, w, 48, text or f"× W2 row {rank}", rank)
        svg.arrow(x + w + 4, y + 24, x + w + (29 if x == 424 else 24), y + 24)

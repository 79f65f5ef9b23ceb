"""Schedules step by step: a pipeline's, DDP's buckets, and shards over a step."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddp_lab.kit.draw.colors import GREY, INK, PALE, RULE, rank_color, tint
from figs.gallery import stepper
from figs.page import Page
from figs.step_by_step import Steps

# --- pipelines ---


class Work(NamedTuple):
    """What a rank does in one slot: forward or backward of a micro-batch."""

    kind: str
    """F or B."""
    batch: int
    turn: int = 0
    """Which of the rank's stages it is in."""


Orders = Sequence[Sequence[Work]]
"""By rank, its work in order."""


def gpipe(stages: int, batches: int) -> list[list[Work]]:
    """Let all micro-batches go forward, then all backward."""
    order = [Work(kind, batch) for kind in "FB" for batch in range(batches)]
    return [order] * stages


def one_f_one_b(stages: int, batches: int) -> list[list[Work]]:
    """Let a micro-batch go back before the next one but p - rank comes in."""
    return [
        alternate(
            [Work("F", batch) for batch in range(batches)],
            [Work("B", batch) for batch in range(batches)],
            stages - rank - 1,
        )
        for rank in range(stages)
    ]


def interleaved(stages: int, batches: int, turns: int = 2) -> list[list[Work]]:
    """Give each rank several thin stages; p micro-batches go through one at a time."""
    groups = range(0, batches, stages)

    def order(kind: str, each: Sequence[int]) -> list[Work]:
        return [
            Work(kind, first + n, turn)
            for first in groups
            for turn in each
            for n in range(stages)
        ]

    forward, backward = order("F", range(turns)), order("B", range(turns)[::-1])
    return [
        alternate(forward, backward, 2 * (stages - rank - 1) + (turns - 1) * stages)
        for rank in range(stages)
    ]


def alternate(
    forward: Sequence[Work], backward: Sequence[Work], ahead: int
) -> list[Work]:
    """Do `ahead` steps forward, then one forward and one back, then what is left."""
    ahead = min(ahead, len(forward))
    pairs = zip(forward[ahead:], backward, strict=False)
    return [
        *forward[:ahead],
        *(work for pair in pairs for work in pair),
        *backward[len(forward) - ahead :],
    ]


def starts(orders: Orders) -> list[list[int]]:
    """Return when each work of each rank begins, if all take one slot.

    A rank does its work in order, and each piece as soon as what it needs is there.

    Raises:
        ValueError: if ranks would wait for each other forever.
    """
    stages = len(orders)
    turns = 1 + max(work.turn for order in orders for work in order)
    done: dict[tuple[int, Work], int] = {}  # when, by rank and work
    at: list[int] = [0] * stages
    begun: list[list[int]] = [[] for _ in orders]
    for slot in range(4 * sum(map(len, orders))):
        now = []
        for rank, order in enumerate(orders):
            if at[rank] == len(order):
                continue
            needs = needed(rank, order[at[rank]], stages, turns)
            if needs is None or needs in done:
                now.append((rank, order[at[rank]]))
        for rank, work in now:
            done[rank, work] = slot
            begun[rank].append(slot)
            at[rank] += 1
        if not now and all(
            n == len(order) for n, order in zip(at, orders, strict=True)
        ):
            return begun
    raise ValueError("these orders never end")


def needed(rank: int, work: Work, stages: int, turns: int) -> tuple[int, Work] | None:
    """Return what must be done before `work`, and on which rank."""
    kind, batch, turn = work
    stage = turn * stages + rank
    last = stages * turns - 1
    if kind == "F":
        if stage == 0:
            return None
        return (stage - 1) % stages, Work("F", batch, (stage - 1) // stages)
    if stage == last:
        return rank, Work("F", batch, turn)
    return (stage + 1) % stages, Work("B", batch, (stage + 1) // stages)


def kept(order: Sequence[Work], begun: Sequence[int], slot: int) -> int:
    """Return how many micro-batches a rank keeps activations of, after `slot`."""
    so_far = [
        work.kind for work, when in zip(order, begun, strict=True) if when <= slot
    ]
    return so_far.count("F") - so_far.count("B")


CHIP, LEFT, HIGH, PITCH = 56, 72, 30, 38


def pipeline(
    name: str, title: str, orders: Orders, says: Mapping[int, str], slot: float = 26
) -> Steps:
    """Draw a schedule slot by slot; `says` tells from which slot on which sentence."""
    begun = starts(orders)
    length = 1 + max(map(max, begun))
    pictures = []
    for now in range(length):
        words = says[max(first for first in says if first <= now)]
        pictures.append(draw_slots(words, orders, begun, now, length, slot))
    return Steps(name, title, pictures)


def draw_slots(
    says: str,
    orders: Orders,
    begun: Sequence[Sequence[int]],
    now: int,
    length: int,
    slot: float,
) -> Page:
    """Draw what each rank has done up to a slot, and how much it keeps then."""
    counts = [kept(*pair, now) for pair in zip(orders, begun, strict=True)]
    doing = [
        next((named(w) for w, s in zip(*both, strict=True) if s == now), "nothing")
        for both in zip(orders, begun, strict=True)
    ]
    desc = "; ".join(
        f"rank {rank} does {what} and keeps {count}"
        for rank, (what, count) in enumerate(zip(doing, counts, strict=True))
    )
    right = LEFT + slot * length
    svg = Page(says, f"Slot {now + 1}: {desc}.", right + 74, 30 + PITCH * len(orders))
    svg.text(right + 38, 14, "keeps", 12, fill=GREY)
    for rank, (order, times) in enumerate(zip(orders, begun, strict=True)):
        y = 26 + PITCH * rank
        svg.chip(8, y, CHIP, HIGH, rank)
        svg.box(LEFT, y, slot * length, HIGH, fill=PALE, stroke=RULE, radius=0, width=1)
        for work, when in zip(order, times, strict=True):
            if when <= now:
                draw_work(svg, LEFT + slot * when, y, slot, rank, work, when == now)
        svg.text(right + 38, y + HIGH / 2, str(counts[rank]), 15, bold=True)
    return svg


def named(work: Work) -> str:
    """Return the name of a slot's work: F0, B3, and F0² in a rank's second stage."""
    return f"{work.kind}{work.batch}{'²' * work.turn}"


def draw_work(
    svg: Page, x: float, y: float, wide: float, rank: int, work: Work, new: bool
) -> None:
    """Draw one slot of a rank: backward is darker than forward."""
    color = rank_color(rank)
    fill = tint(color, 0.25 if work.kind == "F" else 0.6)
    pen = {"stroke": INK, "width": 2.5} if new else {"stroke": color, "width": 1}
    svg.box(x, y, wide, HIGH, fill=fill, radius=2, **pen)
    svg.text(x + wide / 2, y + HIGH / 2, named(work), 12 if wide < 28 else 13)


@stepper
def schedule_gpipe() -> Steps:
    """Draw GPipe's schedule."""
    return pipeline(
        "schedule_gpipe",
        "GPipe: all forward, then all backward",
        gpipe(3, 6),
        {
            0: "F0 is micro-batch 0 going forward. Ranks 1 and 2 have to wait for it.",
            2: "All ranks work. Each keeps what backward will need of a micro-batch, "
            "until that has gone back.",
            6: "Rank 0 has sent off all six and waits for the first to come back; "
            "it keeps all six.",
            8: "The last stage goes back at once; the others wait in turn.",
            10: "All work again, and keep less with every backward.",
            14: "The ranks run out of work one after another: "
            "of 16 slots each has waited in 4.",
        },
    )


@stepper
def schedule_1f1b() -> Steps:
    """Draw the schedule of one forward, one backward."""
    return pipeline(
        "schedule_1f1b",
        "1F1B: one forward, one backward",
        one_f_one_b(3, 6),
        {
            0: "It begins as GPipe does: F0 has to reach the last rank.",
            3: "The last rank sends micro-batch 0 back as soon as it can. "
            "Rank 0 waits: it may run only three ahead.",
            5: "From here on each rank does one forward and one backward in turn.",
            12: "No new micro-batches come in; the last ones go back.",
            15: "16 slots, 4 of them waiting, as in GPipe; "
            "but rank 0 never kept more than 3 micro-batches, and rank 2 only 1.",
        },
    )


@stepper
def schedule_interleaved() -> Steps:
    """Draw a schedule in which each rank has two stages."""
    return pipeline(
        "schedule_interleaved",
        "Interleaved: two thin stages for each rank",
        interleaved(3, 3),
        {
            0: "Six stages, half as thick: rank 0 has stages 0 and 3, rank 1 has 1 and "
            "4, rank 2 has 2 and 5. A slot is half as long.",
            3: "F0² is micro-batch 0 in the rank's second stage: "
            "it has gone round once, over the wire from rank 2 to rank 0.",
            6: "Rank 2 has the last stage and sends micro-batch 0 back.",
            9: "Backward goes round twice as well.",
            14: "16 thin slots are as long as 8 of the others; with one stage for each "
            "rank they would have been 10. The price: twice as many messages.",
        },
        slot=27,
    )


# --- DDP's buckets ---

LAYERS, EACH, SENDING = 6, 2, 2  # layers; of them in a bucket; slots to send one
UNIT, ROW, TOP = 44, 40, 26
LANES = ("layer", "buckets", "the wire", "averaged")


def sent_at(bucket: int) -> int:
    """Return the slot in which a bucket leaves: it is full, and the wire is free."""
    full = EACH * (bucket + 1)
    return max(full, sent_at(bucket - 1) + SENDING) if bucket else full


BUCKETS = range(LAYERS // EACH)
SAYS = (
    "A rank's backward begins with the last layer. Its gradients go into buckets, "
    "here of two layers; the other rank does the same.",
    "Layer 6 has its gradient; bucket 0 waits for layer 5.",
    "Bucket 0 is full, and its all_reduce begins. Backward does not wait for it.",
    "Layer 4 is computed while bucket 0 is on its way.",
    "Bucket 0 has come back as the mean over the ranks; bucket 1 leaves.",
    "Computing and sending go on side by side.",
    "Backward has reached layer 1; only the last bucket has still to go.",
    "That one is not hidden behind anything: the rank waits.",
    "All gradients are means over the ranks. The optimizer may step.",
)


@stepper
def ddp_buckets() -> Steps:
    """Draw gradients that fill buckets, which leave while backward goes on."""
    last = sent_at(BUCKETS[-1]) + SENDING
    pictures = [draw_buckets(SAYS[now], now) for now in range(last + 1)]
    return Steps("ddp_buckets", "DDP's buckets, on one rank", pictures)


def draw_buckets(says: str, now: int) -> Page:
    """Draw what has been computed and sent before the slot `now`."""
    desc = " ".join(f"Bucket {b}: {bucket_state(b, now)}." for b in BUCKETS)
    svg = Page(says, desc, 96 + UNIT * 8 + 8, TOP + ROW * 4 + 6)
    for lane, name in enumerate(LANES):
        svg.text(8, TOP + ROW * lane + 15, name, 13, anchor="start")
    svg.arrow(96, 14, 96 + UNIT * 8, 14, stroke=GREY, size=7)
    for slot in range(min(now, LAYERS)):
        new = slot == now - 1
        slab(svg, 96 + UNIT * slot, 0, UNIT, str(LAYERS - slot), slot, new)
    for bucket in BUCKETS:
        draw_bucket(svg, bucket, now)
    return svg


def bucket_state(bucket: int, now: int) -> str:
    """Return in words what has become of a bucket."""
    begun, ready = sent_at(bucket), min(max(now - EACH * bucket, 0), EACH)
    if now >= begun + SENDING:
        return "averaged"
    return "on the wire" if now >= begun else f"{ready} of {EACH} layers"


def draw_bucket(svg: Page, bucket: int, now: int) -> None:
    """Draw a bucket as it fills, its way over the wire, and what comes back."""
    x, begun = 96 + UNIT * EACH * bucket, sent_at(bucket)
    svg.box(x + 2, TOP + ROW, UNIT * EACH - 4, 30, fill=PALE, dash="4 3")
    for n in range(EACH):
        slot = EACH * bucket + n
        if slot < now:
            slab(svg, x + UNIT * n, 1, UNIT, str(LAYERS - slot), slot, slot == now - 1)
    if now >= begun:
        wide = UNIT * min(now - begun + 1, SENDING)
        if now >= begun + SENDING:
            wide = UNIT * SENDING
        slab(
            svg,
            96 + UNIT * begun,
            2,
            wide,
            f"bucket {bucket}",
            bucket,
            now < begun + SENDING,
        )
    if now >= begun + SENDING:
        for n in range(EACH):
            layer = str(LAYERS - EACH * bucket - n)
            slab(svg, x + UNIT * n, 3, UNIT, layer, None, now == begun + SENDING)


def slab(
    svg: Page,
    x: float,
    lane: int,
    wide: float,
    text: str,
    bucket: int | None,
    new: bool,
) -> None:
    """Draw one box of a lane."""
    color = GREY if bucket is None else rank_color(0)
    pen = {"stroke": INK, "width": 2.5} if new else {"stroke": color, "width": 1.2}
    y = TOP + ROW * lane
    svg.box(x + 2, y, wide - 4, 30, fill=tint(color, 0.25), radius=3, **pen)
    svg.label(x + 2, y, wide - 4, 30, text, 12)


# --- shards over a step ---

RANKS, UNITS, PART, WIDE = 4, 3, 20, 98
SHARD_LEFT, SHARD_TOP, SHARD_PITCH = 68, 44, 62


class Moment(NamedTuple):
    """What every rank holds at one time of a step, by layer."""

    says: str
    whole: int | None = None
    """The layer whose weights are all there."""
    gradients: tuple[str, str, str] = ("", "", "")
    """Of each layer: none, "whole" (a rank's own) or "shard" (of the mean)."""
    stepped: bool = False


def moments() -> list[Moment]:
    """Return a step of fully sharded training, layer by layer."""
    found = [
        Moment(
            "Each rank owns a quarter of each layer's weights, and the optimizer's "
            "state for that quarter only."
        )
    ]
    for layer in range(UNITS):
        freed = f" Of layer {layer} only the own quarters stay." if layer else ""
        words = f"Forward, layer {layer + 1}: an all_gather brings the other quarters, "
        words += f"and each rank computes with its own samples.{freed}"
        found.append(Moment(words, layer))
    gradients = ["", "", ""]
    for layer in reversed(range(UNITS)):
        gradients[layer] = "whole"
        words = (
            f"Backward, layer {layer + 1}: gathered again; each rank gets gradients "
        )
        words += "of all four quarters, from its own samples."
        found.append(Moment(words, layer, as_three(gradients)))
        gradients[layer] = "shard"
        words = "A reduce_scatter leaves each rank the mean of its quarter of layer "
        words += f"{layer + 1}'s gradients; the gathered weights are freed."
        found.append(Moment(words, None, as_three(gradients)))
    words = "Each rank steps its quarters with its part of the optimizer. "
    words += "No rank held more than one whole layer; "
    words += "a library gathers the next one early, and holds two."
    return [*found, Moment(words, None, ("", "", ""), True)]


def as_three(gradients: Sequence[str]) -> tuple[str, str, str]:
    """Return three states as a tuple."""
    first, second, third = gradients
    return first, second, third


@stepper
def shards_over_a_step() -> Steps:
    """Draw weights that are gathered and freed, and gradients that are scattered."""
    pictures = [draw_moment(moment) for moment in moments()]
    return Steps("shards_over_a_step", "One step with everything in shards", pictures)


def draw_moment(moment: Moment) -> Page:
    """Draw what the four ranks hold."""
    names = [f"layer {layer + 1}" for layer in range(UNITS)]
    whole = "no layer" if moment.whole is None else names[moment.whole]
    held = [f"{n} {g}" for n, g in zip(names, moment.gradients, strict=True) if g]
    desc = (
        f"Whole weights on every rank: {whole}. Gradients: {', '.join(held) or 'none'}."
    )
    high = SHARD_TOP + SHARD_PITCH * RANKS - 2
    svg = Page(moment.says, desc, SHARD_LEFT + 20 + WIDE * UNITS, high)
    for layer, name in enumerate(names):
        x = SHARD_LEFT + 18 + WIDE * layer
        bold = layer == moment.whole
        svg.text(x + 2 * PART, 14, name, 13, bold=bold)
        svg.text(x + 2 * PART, 31, call_of(moment, layer), 12, fill=GREY, mono=True)
    for rank in range(RANKS):
        draw_shards(svg, rank, moment)
    return svg


def call_of(moment: Moment, layer: int) -> str:
    """Return which collective has just run for a layer."""
    if moment.whole == layer:
        return "all_gather"
    fresh = moment.whole is None and moment.gradients[layer] == "shard"
    earlier = any(moment.gradients[:layer])
    return "reduce_scatter" if fresh and not earlier else ""


def draw_shards(svg: Page, rank: int, moment: Moment) -> None:
    """Draw a rank's weights, and its gradients below them."""
    y = SHARD_TOP + SHARD_PITCH * rank
    svg.chip(8, y + 4, CHIP, 40, rank)
    for row, letter in enumerate("wg"):
        svg.text(SHARD_LEFT + 8, y + 12 + 25 * row, letter, 12, fill=GREY, mono=True)
    for layer in range(UNITS):
        x = SHARD_LEFT + 18 + WIDE * layer
        gradient = moment.gradients[layer]
        for row in (0, 25):
            wide = PART * RANKS - 2
            svg.box(x, y + row, wide, 22, radius=2, stroke=RULE, width=1, dash="2 3")
        for part in range(RANKS):
            mine, left = part == rank, x + PART * part
            weight = mine or moment.whole == layer
            fresh = moment.stepped and mine
            quarter(svg, left, y, part, weight, fresh or (weight and not mine))
            there = gradient == "whole" or (gradient == "shard" and mine)
            quarter(svg, left, y + 25, part if gradient == "shard" else rank, there)


def quarter(
    svg: Page, x: float, y: float, owner: int, there: bool, new: bool = False
) -> None:
    """Draw a quarter of a layer in the color of its owner, if it is there."""
    if not there:
        return
    color = rank_color(owner)
    pen = {"stroke": INK, "width": 2} if new else {"stroke": color, "width": 1.2}
    svg.box(x, y, PART - 2, 22, fill=tint(color, 0.5), radius=2, **pen)
    svg.text(x + PART / 2 - 1, y + 11, str(owner), 11)

"""The static figures of data-parallel training."""

from ddp_lab.kit.draw.colors import GREY, INK, RULE
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import BAR, END, START, clock, lane, moment

RANKS = (0, 1)


@figure
def ddp_overview() -> Page:
    """Draw one step of data-parallel training on two ranks."""
    svg = page(
        "one step on two ranks",
        "Different samples, same model, one mean gradient.",
        "One training step on two ranks. The samples are dealt out in turn: rank 0 "
        "takes 0, 2, 4 and 6, rank 1 takes 1, 3, 5 and 7. Each rank has the whole "
        "model, its own loss and its own gradients. An all_reduce averages the "
        "gradients; both ranks then make the same optimizer step, so that their models "
        "stay equal.",
        308,
    )
    for rank in RANKS:
        draw_replica(svg, 100 + 112 * rank, rank)
    svg.shared(444, 100, 100, 172, ["all_reduce:", "the mean of", "both"], RANKS)
    return svg


def draw_replica(svg: Page, y: float, rank: int) -> None:
    """Draw what one rank does alone before and after the gradients are averaged."""
    svg.chip(40, y, 64, 60, rank)
    for i in range(4):
        x, top = 118 + 31 * (i % 2), y + 31 * (i // 2)
        svg.block(x, top, 28, 29, str(2 * i + rank), rank)
    svg.arrow(182, y + 30, 200, y + 30)
    svg.block(204, y, 84, 60, "model", rank)
    svg.arrow(292, y + 30, 310, y + 30)
    svg.block(314, y, 102, 28, "own loss", rank)
    svg.block(314, y + 32, 102, 28, "own gradients", rank)
    svg.arrow(420, y + 46, 440, y + 46)
    svg.arrow(548, y + 30, 568, y + 30)
    svg.block(572, y, 108, 60, "same step", rank)


@figure
def ddp_step() -> Page:
    """Draw gradient buckets that are all-reduced while backward still runs."""
    svg = page(
        "one DDP step",
        "Gradients are averaged during backward; step() finds the mean in .grad.",
        "Two ranks over time: forward, backward, step(). Backward goes from the last "
        "layer to the first. As soon as a bucket of gradients is ready on both ranks "
        "it is all-reduced, while backward goes on with the layers before. backward() "
        "returns only when the last bucket is done; then .grad is the mean on every "
        "rank, and step() needs no communication.",
        378,
    )
    top, middle, ready, done = 118, 194, (338, 422, 506), 580
    for rank, y in ((0, top), (1, 270)):
        draw_computation(svg, y, rank, ready, done)
    svg.path(f"M255 {top - 8}v-8H{done - 3}v8", stroke=GREY)
    svg.text((255 + done) / 2, top - 26, "backward()", 13, mono=True)
    svg.text(40, middle + 20, "all_reduce", 13, anchor="start", mono=True)
    svg.line(START, middle + 20, END, middle + 20, stroke=RULE)
    for i, start in enumerate(ready):
        draw_bucket(svg, start, middle, i + 1)
    moment(svg, done, top - 8, 322, "backward() returns")
    clock(svg, 354)
    return svg


def draw_bucket(svg: Page, x: float, y: float, i: int) -> None:
    """Draw the all_reduce of one bucket, to which both ranks bring gradients."""
    svg.shared(x, y, 72, BAR, [f"bucket {i}"], RANKS)
    svg.arrow(x + 6, y - 32, x + 6, y - 4, stroke=GREY)
    svg.arrow(x + 6, y + BAR + 32, x + 6, y + BAR + 4, stroke=GREY)


def draw_computation(svg: Page, y: float, rank: int, ready: tuple, done: float) -> None:
    """Draw what one rank computes in a step; its gradients are `ready` in turn."""
    lane(svg, y, rank)
    svg.block(START, y, 254 - START, BAR, "forward", rank)
    for start, end, layer in zip((254, *ready[:2]), ready, (3, 2, 1), strict=True):
        svg.block(start, y, end - start, BAR, f"layer {layer}", rank)
    svg.wait(ready[-1], y, done - ready[-1], BAR, "waits")
    svg.block(done, y, 84, BAR, "step()", rank, mono=True)


@figure
def micro_batches() -> Page:
    """Draw one step of four micro-batches on two ranks, and its single all_reduce."""
    svg = page(
        "one accumulated step",
        "Gradients add up on each rank; at the end, one all_reduce averages them.",
        "Two ranks over time. Each runs forward and backward on four micro-batches, "
        "one after the other; its gradients add up, and nothing is sent. After the "
        "fourth, one all_reduce averages the gradients over both ranks, and both take "
        "the same optimizer step.",
        264,
    )
    width = 90
    for rank, y in ((0, 96), (1, 166)):
        lane(svg, y, rank)
        for turn in range(4):
            x = START + width * turn
            svg.block(x, y, width - 4, BAR, f"micro {turn + 1}", rank)
        svg.block(START + 4 * width + 106, y, 84, BAR, "step()", rank, mono=True)
    svg.shared(START + 4 * width, 96, 100, 70 + BAR, ["all_reduce"], RANKS)
    clock(svg, 238)
    return svg


@figure
def sampler_padding() -> Page:
    """Draw 13 samples dealt out to two ranks, with one of them handed out twice."""
    svg = page(
        "13 samples for two ranks",
        "DistributedSampler deals them out in turn, and fills the last round up.",
        "Thirteen samples are dealt out in turn. Rank 0 gets 0, 2, 4, 6, 8, 10 and 12. "
        "Rank 1 gets 1, 3, 5, 7, 9 and 11, one fewer; so that both have seven, sample "
        "0 is handed out once more, to rank 1. 14 were handed out, and a count over "
        "all ranks counts sample 0 twice.",
        250,
    )
    samples, width = 13, 62
    for turn in range(-(-samples // 2)):
        x = 120 + 70 * turn
        svg.text(x + width / 2, 88, f"turn {turn}", 12, fill=GREY)
        for rank in RANKS:
            sample, y = 2 * turn + rank, 106 + 58 * rank
            if sample < samples:
                svg.block(x, y, width, 44, str(sample), rank, size=16)
            else:
                svg.box(x, y, width, 44, stroke=INK, dash="5 4")
                svg.text(x + width / 2, y + 22, str(sample - samples), 16)
    for rank in RANKS:
        svg.chip(40, 106 + 58 * rank, 64, 44, rank)
    svg.text(END, 228, "padding: sample 0 for the second time", 13, anchor="end")
    return svg


@figure
def same_step() -> Page:
    """Draw whose samples one step takes, from one process to two that share."""
    svg = page(
        "one step",
        "48 samples for one process; and three ways to start two.",
        "Whose samples one step takes, in four rows. One process: 48 samples, 25 steps "
        "an epoch. torchrun alone: both ranks take the same 48 samples, 25 steps, and "
        "everything is done twice. With a sampler: each rank takes 48 samples of its "
        "own, so that a step has 96, and an epoch 13 steps: another training. With "
        "half the batch: each rank takes 24 samples of its own, so that a step has 48, "
        "and an epoch 25 steps: the training of one process.",
        345,
    )
    rows = (
        ("one process", (48,), "25 steps", "the training you know"),
        ("torchrun alone", (48, 48), "25 steps", "the same 48, done twice"),
        ("+ sampler", (48, 48), "13 steps of 96", "another training"),
        ("+ batch / 2", (24, 24), "25 steps of 48", "the training you know"),
    )
    for row, (name, sizes, steps, means) in enumerate(rows):
        y, x = 80 + 68 * row, 160.0
        svg.text(40, y + 24, name, 14, anchor="start")
        for rank, size in enumerate(sizes):
            width = 3.375 * size
            if row == 1:  # both on the same samples: below each other
                svg.block(x, y + 25 * rank, width, 23, "rank " + str(rank), rank)
            else:
                text = f"rank {rank}: {size}" if row else str(size)
                svg.block(x, y + 4, width, 40, text, rank if row else None)
                x += width + 4
        svg.text(504, y + 14, steps, 14, anchor="start")
        svg.text(504, y + 36, means, 13, fill=GREY, anchor="start")
    return svg


@figure
def spawn_under_torchrun() -> Page:
    """Draw torchrun starting two processes, each of which spawns two ranks."""
    svg = page(
        "mp.spawn under torchrun",
        "Both start the ranks: 2 x 2 processes, and two of each rank.",
        "torchrun starts two processes of the program, its rank 0 and rank 1. Each of "
        "them calls mp.spawn and starts two processes of its own, which call "
        "themselves rank 0 and rank 1 as well. Four processes want to be one of two "
        "ranks, and no two of them meet.",
        300,
    )
    svg.block(280, 78, 160, 40, "torchrun", mono=True)
    for parent in RANKS:
        x = 40 + 330 * parent
        svg.arrow(320 + 80 * parent, 120, x + 155, 146, stroke=GREY)
        svg.block(x, 150, 310, 40, f"torchrun's rank {parent}: mp.spawn()", parent)
        for child in RANKS:
            left = x + 160 * child
            svg.arrow(left + 75, 192, left + 75, 226, stroke=GREY)
            svg.chip(left, 230, 150, 40, child, f'"I am rank {child} of 2"')
    return svg


@figure
def cifar10_epoch() -> Page:
    """Draw one epoch: deal out, train, test, count, print, and again."""
    svg = page(
        "one epoch on two ranks",
        "Each rank works on its own half; gradients and counts are shared.",
        "One epoch on two ranks. set_epoch shuffles the training images anew and each "
        "rank takes its half; it augments them and trains, and after every batch the "
        "gradients are averaged over both ranks. Each rank then tests its half of the "
        "test images, an all_reduce adds the counts, rank 0 prints the accuracy, and "
        "the next epoch begins.",
        360,
    )
    for rank in RANKS:
        draw_worker(svg, 96 + 136 * rank, rank)
    svg.shared(230, 174, 124, 40, ["mean gradients"], RANKS)
    for y in (159, 217):
        svg.arrow(270, y, 270, y + 12, size=7)
        svg.arrow(314, y + 12, 314, y, size=7)
    svg.shared(490, 96, 90, 196, ["all_reduce:", "add the", "counts"], RANKS)
    svg.path("M640 298v24H161v-16", stroke=GREY)
    svg.head(161, 298, 0, -1, fill=GREY)
    svg.text(400, 338, "next epoch", 13, fill=GREY)
    return svg


def draw_worker(svg: Page, y: float, rank: int) -> None:
    """Draw what one rank does in an epoch."""
    svg.chip(40, y, 64, 60, rank)
    steps = (
        (118, 86, ("set_epoch,", "own half")),
        (222, 140, ("augment, train,", "batch by batch")),
        (380, 92, ("test", "own half")),
    )
    for x, w, texts in steps:
        svg.block(x, y, w, 60, "", rank)
        svg.lines(x, y, w, 60, texts)
        svg.arrow(x + w + 2, y + 30, x + w + 16, y + 30, size=7)
    if rank == 0:
        svg.arrow(582, y + 30, 596, y + 30, size=7)
        svg.block(600, y, 80, 60, "", rank)
        svg.lines(600, y, 80, 60, ("print the", "accuracy"), size=12)


@figure
def hidden_wire() -> Page:
    """Draw the same step twice: transfers after backward(), and within it."""
    svg = page(
        "after backward(), or within it",
        "The same layers, the same wire: only the last transfer cannot be hidden.",
        "The same step twice, each time what a rank computes and what the wire "
        "carries. Backward computes layers 4, 3, 2 and 1. First, the wire begins when "
        "backward has ended and carries the gradients of layers 4, 3, 2 and 1 one "
        "after the other, while the rank waits. Second, the wire carries each layer's "
        "gradients while backward computes the next layer; when backward ends, those "
        "of layer 1 alone are left, and step() comes much earlier.",
        392,
    )
    draw_step(svg, 112, "after", hidden=False)
    draw_step(svg, 252, "within", hidden=True)
    clock(svg, 376)
    return svg


def draw_step(svg: Page, y: float, word: str, *, hidden: bool) -> None:
    """Draw one step: four layers on rank 0 over their transfers on the wire."""
    computes, carries, wire = 64, 56, y + 54
    lane(svg, y, 0)
    svg.text(40, y - 16, word, 14, anchor="start", bold=True)
    svg.text(40, wire + BAR / 2, "wire", 13, anchor="start")
    svg.line(START - 20, wire + BAR / 2, END, wire + BAR / 2, stroke=RULE)
    ended = START + 4 * computes
    free = START if hidden else ended
    for i in range(4):
        ready = START + (i + 1) * computes
        svg.block(ready - computes, y, computes, BAR, f"layer {4 - i}", 0)
        begin = max(free, ready)
        svg.shared(begin, wire, carries, BAR, [str(4 - i)], RANKS)
        free = begin + carries
    svg.wait(ended, y, free - ended, BAR, "waits")
    svg.block(free, y, 64, BAR, "step()", 0, mono=True)

"""The static figures of checkpoints: how one is written and read, and what is in it."""

from ddp_lab.kit.draw.colors import GREY, rank_color
from figs.gallery import figure
from figs.page import Page, page
from figs.processes import BAR, START, clock, lane, moment

CONTENTS = (
    ("model", "nothing is left of the training"),
    ("optimizer", "momentum starts again from zero"),
    ("scheduler", "the learning rate restarts"),
    ("epoch and step", "finished work is repeated"),
    ("sampler position", "samples are seen twice, or never"),
    ("random state of each rank", "dropout and augmentation differ"),
)


@figure
def checkpoint_save_load() -> Page:
    """Draw rank 0 writing a file that all ranks read after a barrier."""
    svg = page(
        "save on one rank, load on all",
        "The named file is always whole; no rank reads it before the barrier.",
        "Three ranks over time. Rank 0 writes a temporary file and then renames it to "
        "ckpt.pt, so that under this name there is always a whole file: first the old "
        "one, then the new one. Ranks 1 and 2 wait at a barrier until rank 0 gets "
        "there; only then do all three load the new file.",
        404,
    )
    renames, meet = 352, 442
    for rank in range(3):
        y = 82 + 52 * rank
        lane(svg, y, rank)
        svg.block(START, y, 60, BAR, "train", rank)
        if rank:
            svg.wait(184, y, meet - 184, BAR, "waits at the barrier")
        svg.block(meet, y, 130, BAR, "load ckpt.pt", rank)
    svg.block(184, 82, renames - 184, BAR, "write a temporary file", 0)
    svg.block(renames, 82, meet - renames, BAR, "rename it", 0)
    draw_files(svg, 262, renames, meet)
    moment(svg, meet, 74, 344, "dist.barrier()")
    clock(svg, 380)
    return svg


def draw_files(svg: Page, y: float, renames: float, meet: float) -> None:
    """Draw what lies on the disk while rank 0 writes and renames."""
    for i, name in enumerate(("ckpt.pt", "temporary")):
        svg.text(40, y + 14 + 36 * i, name, 12, anchor="start", mono=i == 0)
    svg.block(START, y, meet - 40 - START, 28, "the old file, whole")
    svg.block(meet - 40, y, 680 - meet + 40, 28, "the new file, whole", 0)
    svg.block(184, y + 36, meet - 40 - 184, 28, "growing", 0)
    svg.path(f"M{meet - 36} {y + 50}h12v-10", stroke=rank_color(0), width=2)
    svg.head(meet - 24, y + 32, 0, -1, fill=rank_color(0))


@figure
def checkpoint_contents() -> Page:
    """Draw what a checkpoint holds, and what is lost with each part."""
    parts = "; ".join(f"{name}: {loss}" for name, loss in CONTENTS)
    svg = page(
        "what a checkpoint holds",
        "The model is enough to test, not to resume.",
        "The parts of a checkpoint and what happens if a part is forgotten. The model "
        f"is enough to test with; to resume, all others are needed too. {parts}.",
        400,
    )
    svg.text(386, 88, "if it is forgotten", 13, fill=GREY, anchor="start")
    svg.text(40, 88, "to test", 13, fill=GREY, anchor="start")
    svg.text(40, 158, "to resume, also", 13, fill=GREY, anchor="start")
    for i, (name, loss) in enumerate(CONTENTS):
        y = 104 + 42 * i + (28 if i else 0)
        svg.block(40, y, 300, 34, "")
        svg.text(54, y + 17, name, 14, anchor="start")
        svg.arrow(348, y + 17, 374, y + 17, stroke=GREY)
        svg.text(386, y + 17, loss, 14, anchor="start")
    for rank in range(3):
        svg.chip(258 + 26 * rank, y + 7, 22, 20, rank, str(rank))
    return svg


@figure
def sharded_weight() -> Page:
    """Draw a weight of 12 rows as DDP keeps it, and as FSDP does."""
    svg = page(
        "a weight of 12 rows on four ranks",
        "DDP keeps a copy on each rank; FSDP cuts it up, a share for each rank.",
        "Left, DDP: each of four ranks holds all rows, 0 to 11. Right, FSDP over a "
        "mesh of four ranks: rank 0 holds rows 0 to 2, rank 1 rows 3 to 5, rank 2 rows "
        "6 to 8, rank 3 rows 9 to 11. An all_gather lends a layer all its rows for as "
        "long as it computes.",
        300,
    )
    svg.text(210, 88, "DDP", 14, bold=True)
    svg.text(540, 88, "FSDP, mesh (4,)", 14, bold=True)
    for rank in range(4):
        y = 106 + 40 * rank
        svg.chip(40, y, 64, 32, rank)
        svg.block(112, y, 196, 32, "rows 0 to 11", rank)
        svg.chip(370, y, 64, 32, rank)
        svg.box(442, y, 196, 32, dash="5 4")
        first = 3 * rank
        svg.block(442 + 49 * rank, y, 49, 32, f"{first}–{first + 2}", rank)
    svg.text(210, 284, "any rank can save everything", 13, fill=GREY)
    svg.text(540, 284, "no rank can", 13, fill=GREY)
    return svg

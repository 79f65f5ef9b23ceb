"""The static figures of the overview: what each road cuts, and which one to take."""

from math import inf

from ddp_lab.kit.draw.colors import GREY, INK, PALE
from figs.gallery import figure
from figs.page import Page, page

RANKS = 4
NAME, ROWS, WEIGHTS, TRAVELS, BAR = 40, 176, 336, 496, 144  # where columns begin
TOP, STEP, HIGH = 112, 46, 32

ROADS = (
    ("one process", "one", "one", "nothing"),
    ("DDP", "cut", "all", "gradients"),
    ("averaging", "cut", "all", "weights"),
    ("sharded", "cut", "cut", "weights, gradients"),
    ("tensor", "all", "cut", "activations, summed"),
    ("pipeline", "pass", "layers", "activations, passed on"),
    ("remote calls", "one", "layers", "activations, by rank 0"),
)


@figure
def roads() -> Page:
    """Draw which rows and which weights each rank works with, road by road."""
    kinds = {
        "one": "rank 0 has all",
        "all": "every rank has all",
        "pass": "all pass through every rank",
        "cut": "each rank has a quarter",
        "layers": "each rank has a quarter of the layers",
    }
    told = " ".join(
        f"{name}: of the rows {kinds[rows]}, of the weights {kinds[weights]}; "
        f"what travels: {travels}."
        for name, rows, weights, travels in ROADS
    )
    svg = page(
        "seven ways to make a step",
        "Which rank has which rows and weights, and what has to travel for it.",
        f"A table of roads for four ranks. {told}",
        TOP + STEP * len(ROADS) + 16,
    )
    for x, head in ((ROWS, "rows"), (WEIGHTS, "weights"), (TRAVELS, "what travels")):
        svg.text(x, TOP - 18, head, 13, fill=GREY, anchor="start")
    for i, (name, rows, weights, travels) in enumerate(ROADS):
        y = TOP + STEP * i
        svg.text(NAME, y + HIGH / 2, name, 14, anchor="start", bold=True)
        draw_bar(svg, ROWS, y, rows)
        draw_bar(svg, WEIGHTS, y, weights)
        svg.text(TRAVELS, y + HIGH / 2, travels, 13, anchor="start")
    return svg


def draw_bar(svg: Page, x: float, y: float, kind: str) -> None:
    """Draw who has what: rank 0, all ranks, or each a part of it."""
    if kind == "one":
        svg.block(x, y, BAR, HIGH, "rank 0", 0)
    elif kind in ("all", "pass"):
        text = "on every rank" if kind == "all" else "pass through"
        svg.shared(x, y, BAR, HIGH, [text], range(RANKS))
    else:
        part = BAR / RANKS
        for rank in range(RANKS):
            svg.block(x + part * rank, y, part - 4, HIGH, str(rank), rank)


SIZES = {  # parameters, layers, width
    "125 million": (125e6, 12, 768),
    "1.3 billion": (1.3e9, 24, 2048),
    "7 billion": (6.7e9, 32, 4096),
    "34 billion": (34e9, 48, 8192),
    "70 billion": (70e9, 80, 8192),
    "175 billion": (175e9, 96, 12288),
    "405 billion": (405e9, 126, 16384),
}
DEVICES = (1, 8, 64, 512, 4096)
LEFT, FIRST, WIDE, TALL = 40, 136, 114, 58  # of the map: columns and rows


def chosen(size: tuple[float, int, int], devices: int) -> list[str]:
    """Return what the cost model chooses; recomputing is left out."""
    from ddp_lab.overview import road  # it imports torch, which the book does without

    asked = road.Training(*size, 1024, 4096, devices, **road.H100, slow=45 * road.GB)
    time, _, cut = road.road(asked)[0]
    if time == inf:
        return ["does not fit"]
    words = road.name(cut).split(", ")
    return [word for word in words if "recomputed" not in word]


@figure
def road_map() -> Page:
    """Draw which road the cost model chooses, by the model's size and the devices."""
    rows = {
        size: [chosen(numbers, devices) for devices in DEVICES]
        for size, numbers in SIZES.items()
    }
    told = " ".join(
        f"{size} parameters: "
        + "; ".join(
            f"on {devices}: {', '.join(words)}"
            for devices, words in zip(DEVICES, row, strict=True)
        )
        + "."
        for size, row in rows.items()
    )
    svg = page(
        "which road, on H100?",
        "Steps of 4 million tokens, on as many devices as pay; from the cost model.",
        f"A table of the chosen road, by model and number of H100. {told}",
        112 + TALL * len(rows) + 16,
    )
    for i, devices in enumerate(DEVICES):
        svg.text(FIRST + WIDE * (i + 0.5) - 3, 94, f"{devices:,} H100", 13, fill=GREY)
    for j, (size, row) in enumerate(rows.items()):
        y = 112 + TALL * j
        svg.text(LEFT, y + TALL / 2 - 3, size, 13, anchor="start", bold=True)
        for i, words in enumerate(row):
            x = FIRST + WIDE * i
            svg.box(x, y, WIDE - 6, TALL - 6, fill=PALE, stroke=INK)
            text = "\n".join(words)
            for kind in ("sharded optimizer", "hybrid sharded"):  # too long for a line
                text = text.replace(kind, kind.replace(" ", "\n"))
            svg.lines(x, y, WIDE - 6, TALL - 6, text.splitlines(), 11)
    return svg

"""The map of layouts: which one to take, by the model's size and the GPUs."""

from math import inf

from ddp_lab.kit.draw.colors import GREY, INK, PALE
from figs.gallery import figure
from figs.page import Page, page

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
LEFT, FIRST, WIDE, TALL = 40, 136, 114, 66  # of the map: columns and rows


def chosen(size: tuple[float, int, int], devices: int) -> list[str]:
    """Return what the cost model chooses; recomputing is left out."""
    from ddp_lab.scale import road  # it imports torch, which the book does without

    asked = road.Training(*size, 1024, 4096, devices, **road.H100, slow=45 * road.GB)
    time, _, cut = road.road(asked)[0]
    if time == inf:
        return ["does not fit"]
    told = road.name(cut).replace(", laps", "; laps")  # of a pipeline, on its line
    words = [word for word in told.split(", ") if "recomputed" not in word]
    return [shorter(word) for word in words]


def shorter(word: str) -> str:
    """Return a part of a layout in the field's words."""
    names = {"sharded optimizer": "ZeRO-1", "hybrid sharded": "HSDP", "sharded": "FSDP"}
    for ours, theirs in names.items():
        word = word.replace(ours, theirs)
    return word.replace(";", ",")


@figure
def road_map() -> Page:
    """Draw which layout the planner chooses, by the model's size and the devices."""
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
        "which layout, on H100?",
        "Steps of 4 million tokens, on as many GPUs as pay; what the planner chooses.",
        f"A table of the chosen layout, by model and number of H100. {told}",
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
            svg.lines(x, y, WIDE - 6, TALL - 6, words, 11)
    return svg

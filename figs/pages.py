"""The static figure of old pages and the releases they were written for."""

from ddp_lab.kit.draw.colors import GREY, RULE
from figs.gallery import figure
from figs.page import Page, page

FIRST, LAST, LEFT, YEAR = 2017, 2026, 58, 66.0  # pixels of a year
# When it was written, how it is called here, how high it hangs above the line.
PAGES = [
    (2017.3, "tutorial, 2017", 1),
    (2020.5, "overview, 2020", 1),
    (2021.3, "note, ≈ 2021", 2),
    (2022.15, "course, 2022", 3),
    (2023.2, "DDP tutorial, ≈ 2023", 1),
    (2025.3, "guide, 2025", 2),
]
RELEASES = [(2018.9, "1.0"), (2021.8, "1.10"), (2023.2, "2.0"), (2025.1, "2.6")]
NEWS = ["c10d", "torchrun", "compile", "weights_only"]


@figure
def old_pages() -> Page:
    """Draw the pages of the lesson on a time line, and releases of PyTorch below."""
    svg = page(
        "six pages",
        "A page stays as it was; PyTorch does not.",
        "A time line from 2017 to 2026. Above it stand the texts: a tutorial of 2017, "
        "an overview of 2020, a note of about 2021, a course of 2022 that copies "
        "from the tutorial of 2017, the official DDP tutorial of about 2023, and a "
        "guide of 2025. Below it stand releases of PyTorch: 1.0 of 2018 with c10d, "
        "1.10 of 2021 with torchrun, 2.0 of 2023 with compile, 2.6 of 2025, whose "
        "torch.load takes weights only.",
        336,
    )
    line = 218
    svg.arrow(LEFT - 18, line, 690, line)
    for year in range(FIRST, LAST + 1):
        svg.line(place(year), line - 4, place(year), line + 4, stroke=GREY)
        svg.text(place(year), line + 18, str(year), 12, fill=GREY)
    for when, _, level in PAGES:
        svg.line(place(when), line - 42 * level, place(when), line - 4, stroke=RULE)
    for when, name, level in PAGES:  # above all lines
        top, x = line - 4 - 42 * level, place(when)
        width = 9 * len(name)
        svg.block(max(24, x - width / 2), top, width, 28, name, 0)
    for (when, name), news in zip(RELEASES, NEWS, strict=True):
        svg.line(place(when), line + 30, place(when), line + 44, stroke=RULE)
        svg.lines(place(when) - 60, line + 46, 120, 44, [name, news], 12)
    # The course copies from the tutorial.
    svg.path(f"M{place(2017.3)} {line - 46}V{line - 116}H{place(2022.15) - 58}")
    svg.text(place(2019.0), line - 128, "copied into", 12, fill=GREY)
    return svg


def place(year: float) -> float:
    """Return where a year stands on the line."""
    return LEFT + YEAR * (year - FIRST)

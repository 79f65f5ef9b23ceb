"""What each rank holds, before and after: one row of cells for each rank."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddp_lab.kit.draw.colors import GREY, RULE, WHITE, rank_color, text_on, tint
from ddp_lab.kit.draw.svg import Svg, text_width

PAGE, MARGIN, MIDDLE = 720, 16, 56  # the widest page; round it; between the columns
CHIP, PAD, GAP = 58, 6, 3  # a rank's name; inside its box; between two cells
MOST_CELLS = 8


def short(value: Any) -> str:
    """Write a value short: of a fraction the first four digits that count."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 1e6 or 0 < size < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(power)}"
    if isinstance(value, int) or size == 0:
        return str(int(value))
    places = max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def flat(held: Any) -> list:
    """List the values that one rank holds: none, one, or many, in lists or tensors."""
    held = held.tolist() if hasattr(held, "tolist") else held
    if held is None:
        return []
    if isinstance(held, list | tuple):
        return [value for part in held for value in (flat(part) or ["–"])]
    return [held]


@dataclass(frozen=True)
class Cell:
    """A value in a rank's hands and the ranks whose colors it bears; none: white."""

    text: str
    ranks: tuple[int, ...] = ()

    def draw(self, svg: Svg, x: float, y: float, w: float, h: float) -> None:
        """Draw the value, tinted for one rank, striped for several."""
        color = rank_color(self.ranks[0]) if len(self.ranks) == 1 else None
        fill = tint(color) if color else WHITE
        svg.box(x, y, w, h, fill=fill, stroke=color or GREY, width=1.2, radius=3)
        svg.label(x, y, w, h, self.text)
        if len(self.ranks) > 1:
            svg.stripes(x + 3, y + h - 5, w - 6, 3, self.ranks)


Rows = Sequence[Sequence[Cell]]
"""The cells of all ranks, by rank."""


def longest(rows: Rows) -> int:
    """Return how many cells the longest row has, at least one."""
    return max([1, *map(len, rows)])


def cell_width(rows: Rows, size: float = 13, margin: float = 12) -> float:
    """Return one width for all cells, for text of `size` with `margin` beside it."""
    texts = [text_width(cell.text, size) + margin for row in rows for cell in row]
    least = 2 * size + 4 if longest(rows) > 1 else 46
    most = (PAGE - 2 * MARGIN - CHIP - 2 * PAD + GAP) / longest(rows) - GAP
    return math.floor(min(max([least, *texts]), most))


@dataclass(frozen=True)
class Column:
    """What all ranks, from `first` on, hold at one time, in cells `wide` across."""

    heading: str
    rows: Rows
    wide: float
    first: int = 0

    @property
    def width(self) -> float:
        """The width of the box of each rank."""
        return CHIP + 2 * PAD + longest(self.rows) * (self.wide + GAP) - GAP

    @property
    def size(self) -> tuple[float, float]:
        """The height of a rank's box, and the distance from one to the next."""
        return (40, 50) if len(self.rows) <= 4 else (34, 40)

    @property
    def height(self) -> float:
        """The height from the first rank's box to the last one's."""
        high, pitch = self.size
        return (len(self.rows) - 1) * pitch + high

    def draw(self, svg: Svg, x: float, y: float) -> None:
        """Draw the boxes of the ranks below each other, the heading above them."""
        over = text_width(self.heading, 13) > self.width - CHIP - 2 * PAD
        x1, anchor = (x + self.width, "end") if over else (x + CHIP + PAD, "start")
        svg.text(x1, y - 14, self.heading, 13, fill=GREY, anchor=anchor)
        for i in range(len(self.rows)):
            self.draw_rank(svg, x, y + i * self.size[1], i)

    def draw_rank(self, svg: Svg, x: float, y: float, i: int) -> None:
        """Draw the box of one rank: its name and its values."""
        rank, (h, _), wide = self.first + i, self.size, self.wide
        color = rank_color(rank)
        svg.box(x, y, self.width, h, stroke=color)
        svg.box(x, y, CHIP, h, fill=color, stroke=color)
        svg.label(x, y, CHIP, h, f"rank {rank}", fill=text_on(color), bold=True)
        left, top, high = x + CHIP + PAD, y + PAD, h - 2 * PAD
        if not self.rows[i]:
            svg.box(left, top, wide, high, stroke=RULE, width=1.2, radius=3, dash="3 3")
        for j, cell in enumerate(self.rows[i]):
            cell.draw(svg, left + j * (wide + GAP), top, wide, high)


def spoken(rows: Rows) -> str:
    """Say in words what the ranks hold."""
    return "; ".join(
        f"rank {rank} " + (", ".join(cell.text for cell in cells) or "nothing")
        for rank, cells in enumerate(rows)
    )


def texts_by_rank(held: Sequence) -> list[list[str]]:
    """Write the values of each rank, the end of a long row cut off."""
    rows = [[short(value) for value in flat(values)] for values in held]
    cut = MOST_CELLS - 1
    return [row if len(row) <= MOST_CELLS else [*row[:cut], "…"] for row in rows]


def colored(before: list[list[str]], after: list[list[str]]) -> tuple[Rows, str]:
    """Give the values of `after` their colors; return them, and what these say.

    Where every value was there before, each has the color of a rank that held it, its
    own if it can be. Else something was computed: then what is unchanged in its place
    keeps its rank's color, and the rest is white.
    """
    moved = all(any(text in row for row in before) for row in after for text in row)

    def owner(rank: int, i: int, text: str) -> tuple[int, ...]:
        if before[rank][i : i + 1] == [text] or (moved and text in before[rank]):
            return (rank,)
        return (
            (next(r for r, row in enumerate(before) if text in row),) if moved else ()
        )

    rows = [
        [Cell(text, owner(rank, i, text)) for i, text in enumerate(row)]
        for rank, row in enumerate(after)
    ]
    if all(cell.ranks == (rank,) for rank, row in enumerate(rows) for cell in row):
        return rows, ""
    if moved:
        return rows, "A cell has the color of the rank that held it before."
    return rows, "White cells have changed; colored ones are as before."


def before_after(title: str, before: Sequence, after: Sequence) -> Svg:
    """Draw what each rank held before and holds after something.

    Args:
        title: what happened, e.g. "broadcast from rank 0".
        before: by rank, a number, a string, a list of them (one cell each), or None.
        after: the same, as long as `before`.

    Returns:
        A figure that a notebook displays; the same values give the same text.

    Raises:
        ValueError: if there are no ranks, or not equally many before and after.
    """
    if not before or len(before) != len(after):
        raise ValueError(f"{len(before)} ranks before, {len(after)} after: {title}")
    held = texts_by_rank(before)
    left = [[Cell(text, (rank,)) for text in row] for rank, row in enumerate(held)]
    right, note = colored(held, texts_by_rank(after))
    svg = Svg(title, f"Before: {spoken(left)}. After: {spoken(right)}.")
    lay_out(svg, left, right, note)
    return svg


def held(title: str, values: Sequence) -> Svg:
    """Draw what each rank holds: values as `before_after` takes them."""
    rows = [
        [Cell(text, (r,)) for text in row]
        for r, row in enumerate(texts_by_rank(values))
    ]
    svg, column = Svg(title, f"{spoken(rows)}."), Column("", rows, cell_width(rows))
    words = text_width(title, 16, bold=True)
    svg.width = math.ceil(min(max(column.width, words) + 2 * MARGIN, PAGE))
    top = 16 + 22 * write_title(svg)
    column.draw(svg, MARGIN, top)
    svg.height = top + column.height + MARGIN
    return svg


def lay_out(svg: Svg, left: Rows, right: Rows, note: str) -> None:
    """Draw the title, both columns and the note, on a page that is just big enough."""
    first, second, beside = columns(left, right)
    x2 = MARGIN + (first.width + MIDDLE if beside else 0)
    words = max(text_width(note, 12), text_width(svg.title, 16, bold=True)) + 2 * MARGIN
    content = max(first.width + MARGIN, x2 + second.width) + MARGIN
    svg.width = math.ceil(max(content, min(words, PAGE)))
    top = 50 + 22 * write_title(svg)
    y2 = top + (0 if beside else first.height + MIDDLE)
    first.draw(svg, MARGIN, top)
    second.draw(svg, x2, y2)
    if beside:
        y = top + first.height / 2
        svg.arrow(x2 - MIDDLE + 12, y, x2 - 12, y, width=2, size=10)
    else:
        x = MARGIN + CHIP / 2
        svg.arrow(x, y2 - MIDDLE + 10, x, y2 - 12, width=2, size=10)
    bottom = y2 + second.height
    svg.text(MARGIN, bottom + 20, note, 12, fill=GREY, anchor="start")
    svg.height = bottom + (34 if note else MARGIN)


def columns(left: Rows, right: Rows) -> tuple[Column, Column, bool]:
    """Return both columns; True where there is room for them beside each other."""
    for size, margin in ((13, 12), (12, 6)):
        first = Column("before", left, cell_width(left, size, margin))
        second = Column("after", right, cell_width(right, size, margin))
        if 2 * MARGIN + first.width + MIDDLE + second.width <= PAGE:
            return first, second, True
    if longest(left) == longest(right):
        wide = cell_width([*left, *right])
        return Column("before", left, wide), Column("after", right, wide), False
    first = Column("before", left, cell_width(left))
    return first, Column("after", right, cell_width(right)), False


def write_title(svg: Svg) -> int:
    """Write the title, on as many lines as it takes; return how many."""
    room = svg.width - 2 * MARGIN
    fits = text_width(svg.title, 16, bold=True) <= room
    lines = [svg.title] if fits else textwrap.wrap(svg.title, int(room / 11))
    for i, line in enumerate(lines):
        svg.text(MARGIN, 24 + 22 * i, line, 16, anchor="start", bold=True)
    return len(lines)

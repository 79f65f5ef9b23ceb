"""The marks that every drawing of the lab is made of: text, boxes, arrows, hatching.

A drawing is plain SVG text without ids, style sheets or scripts, so that many of them
can stand on one page, and it is the same text on every machine: notebooks and tests
compare it byte for byte.
"""

import base64
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from ddp_lab.kit.draw.colors import (
    GREY,
    INK,
    PALE,
    RULE,
    WHITE,
    rank_color,
    text_on,
)

SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'Liberation Mono', monospace"

READABLE = 10  # pixels: the least size of a text as it is shown
QUOTE = {'"': "&quot;"}

Style = Any
"""A drawing option: the pen's (stroke, width, dash) or the font's; see `Svg`."""

_NARROW, _WIDE = frozenset("iljtfr.,:;|!'()[] -"), frozenset("mwMWQGO@%+=→…Σ")


def image(alt: str, source: str, width: float, smallest: float) -> str:
    """Return HTML with an image, which also a notebook shows that nobody trusts yet.

    Where there is less room than `width`, it is shown smaller, and scrolls by itself
    before its smallest text cannot be read. A white page on a dark one has soft
    corners.
    """
    least = math.ceil(width * READABLE / smallest)
    style = f"width: {width:g}px; max-width: 100%; min-width: {least}px"
    words = f'alt="{escape(alt, QUOTE)}" style="{style}; border-radius: 6px"'
    return f'<div style="overflow-x: auto"><img {words} src="{source}"></div>'


def text_width(
    text: str, size: float, *, bold: bool = False, mono: bool = False
) -> float:
    """Return about how wide `text` is at `size`, in a font that runs rather wide."""
    if mono:
        return 0.61 * size * len(text)
    ems = sum(
        0.4 if c in _NARROW else 0.9 if c in _WIDE else 0.71 if c.isupper() else 0.63
        for c in text
    )
    return ems * size * (1.1 if bold else 1)


def shorten(text: str, width: float, size: float, **font: bool) -> str:
    """Return `text`, cut short with an ellipsis where it is wider than `width`."""
    if text_width(text, size, **font) <= width:
        return text
    while text and text_width(text + "…", size, **font) > width:
        text = text[:-1]
    return text + "…"


def number(value: float) -> str:
    """Write a coordinate: at most two decimals, no trailing zeros, no minus zero."""
    return f"{round(value, 2) + 0:g}"


def _pen(
    stroke: str = INK, width: float = 1.5, dash: str | None = None
) -> dict[str, Style]:
    wide = None if stroke == "none" else width
    return {"stroke": stroke, "stroke_width": wide, "stroke_dasharray": dash}


def _font(
    fill: str = INK, anchor: str = "middle", bold: bool = False, mono: bool = False
) -> dict[str, Style]:
    return {
        "fill": fill,
        "text_anchor": None if anchor == "start" else anchor,
        "font_weight": "600" if bold else None,
        "font_family": MONO if mono else None,
    }


@dataclass
class Svg:
    """A white page of `width` x `height` to draw on; x grows rightwards, y downwards.

    `title` names the figure and `desc` says what it shows, for those who cannot see
    it. A notebook shows an Svg by itself; `str()` gives the SVG text.

    Marks take the options of the pen, `stroke` (a color), `width` and `dash` (an SVG
    dash pattern), and those of the font, `fill` (a color), `anchor` ("start", "middle"
    or "end"), `bold` and `mono`. An unknown option raises a TypeError.
    """

    title: str
    desc: str
    width: float = 720
    height: float = 300
    parts: list[str] = field(default_factory=list)

    def add(self, tag: str, content: str | None = None, **attributes: Style) -> None:
        """Add one element; an underscore in an attribute's name stands for a dash."""
        pairs = [
            f' {name.replace("_", "-")}="{v if isinstance(v, str) else number(v)}"'
            for name, v in attributes.items()
            if v is not None
        ]
        end = "/>" if content is None else f">{escape(content)}</{tag}>"
        self.parts.append(f"<{tag}{''.join(pairs)}{end}")

    def text(
        self, x: float, y: float, text: str, size: float = 14, **font: Style
    ) -> None:
        """Write `text`; its middle is at height `y`, and its `anchor` at `x`."""
        if text:
            y += 0.35 * size  # down to the baseline
            self.add("text", text, x=x, y=y, font_size=size, **_font(**font))

    def label(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str,
        size: float = 13,
        **font: Style,
    ) -> None:
        """Write `text` in the middle of a box, smaller or cut short if need be."""
        face = {key: font[key] for key in ("bold", "mono") if key in font}
        while size > 10 and text_width(text, size, **face) > w - 6:
            size -= 1
        text = shorten(text, w - 4, size, **face)
        self.text(x + w / 2, y + h / 2, text, size, **font)

    def path(self, d: str, **pen: Style) -> None:
        """Draw the SVG path `d`."""
        self.add("path", d=d, fill="none", **_pen(**pen))

    def line(self, x1: float, y1: float, x2: float, y2: float, **pen: Style) -> None:
        """Draw a straight line."""
        self.path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", **pen)

    def head(
        self,
        x: float,
        y: float,
        dx: float,
        dy: float,
        *,
        fill: str = INK,
        size: float = 8,
    ) -> None:
        """Draw an arrow's head with its tip at (x, y), pointing along (dx, dy)."""
        length = (dx * dx + dy * dy) ** 0.5
        ux, uy = dx / length * size, dy / length * size
        tail = ((x - ux - uy / 2, y - uy + ux / 2), (x - ux + uy / 2, y - uy - ux / 2))
        points = " ".join(f"{number(a)},{number(b)}" for a, b in ((x, y), *tail))
        self.add("polygon", points=points, fill=fill)

    def arrow(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        size: float = 8,
        **pen: Style,
    ) -> None:
        """Draw a straight arrow from (x1, y1) to (x2, y2)."""
        dx, dy = x2 - x1, y2 - y1
        back = 0.8 * size / (dx * dx + dy * dy) ** 0.5
        self.line(x1, y1, x2 - dx * back, y2 - dy * back, **pen)
        self.head(x2, y2, dx, dy, fill=pen.get("stroke", INK), size=size)

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        *,
        fill: str = WHITE,
        radius: float = 5,
        **pen: Style,
    ) -> None:
        """Draw a box with corners of `radius`; its stroke is gray unless told else."""
        pen.setdefault("stroke", RULE)
        rx = radius or None
        self.add("rect", x=x, y=y, width=w, height=h, rx=rx, fill=fill, **_pen(**pen))

    def chip(
        self, x: float, y: float, w: float, h: float, rank: int, text: str = ""
    ) -> None:
        """Draw a tag in the color of `rank`, with `text`, by default "rank N"."""
        color = rank_color(rank)
        self.box(x, y, w, h, fill=color, stroke="none", radius=4)
        text = text or f"rank {rank}"
        self.label(x, y, w, h, text, fill=text_on(color), bold=True)

    def stripes(
        self, x: float, y: float, w: float, h: float, ranks: Sequence[int]
    ) -> None:
        """Draw a strip that is shared out among the colors of `ranks`."""
        share = w / len(ranks)
        for i, rank in enumerate(ranks):
            fill = rank_color(rank)
            self.box(x + i * share, y, share, h, fill=fill, stroke="none", radius=0)

    def wait(self, x: float, y: float, w: float, h: float, text: str = "") -> None:
        """Draw a hatched gray box: time in which somebody only waits."""
        self.box(x, y, w, h, fill=PALE, radius=0)
        hatching = ""
        for s in range(8, int(w + h), 8):  # the line where x + y = s, within the box
            x1, x2 = min(s, w), max(0, s - h)
            hatching += f"M{number(x + x1)} {number(y + s - x1)}"
            hatching += f"L{number(x + x2)} {number(y + s - x2)}"
        self.path(hatching, stroke=RULE, width=1)
        if text:
            plate, middle = text_width(text, 12) + 10, y + h / 2
            left = x + (w - plate) / 2
            self.box(left, middle - 9, plate, 18, stroke="none", radius=3)
            self.text(x + w / 2, middle, text, 12, fill=GREY)

    @property
    def smallest(self) -> float:
        """The size of the smallest text."""
        sizes = re.findall(r'font-size="([\d.]+)"', "".join(self.parts))
        return min(map(float, sizes), default=READABLE)

    def __str__(self) -> str:
        """Return the SVG text, which ends in a newline."""
        w, h = number(self.width), number(self.height)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" '
            f'viewBox="0 0 {w} {h}" role="img" font-family="{SANS}" '
            'style="max-width:100%;height:auto">'
        )
        alt = f"<title>{escape(self.title)}</title>\n<desc>{escape(self.desc)}</desc>"
        page = f'<rect width="{w}" height="{h}" fill="{WHITE}"/>'
        return "\n".join([head, alt, page, *self.parts, "</svg>"]) + "\n"

    def __repr__(self) -> str:
        """Say what the figure shows, where no picture can be shown."""
        return f"{self.title}: {self.desc}"

    def _repr_html_(self) -> str:
        """Return an image with its words for those who cannot see it."""
        data = base64.b64encode(str(self).encode()).decode()
        source = f"data:image/svg+xml;base64,{data}"
        return image(repr(self), source, self.width, self.smallest)

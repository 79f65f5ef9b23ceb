"""The page of a figure: an Svg, and what only the figures draw on it."""

from collections.abc import Sequence

from ddp_lab.kit.draw.colors import GREY, INK, PALE, rank_color, tint
from ddp_lab.kit.draw.svg import Style, Svg


class Page(Svg):
    """A page on which ranks do, or hold, something, each by itself or together."""

    def lines(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        texts: Sequence[str],
        size: float = 13,
    ) -> None:
        """Write `texts` below each other in the middle of a box."""
        for i, text in enumerate(texts):
            middle = y + h / 2 + (i - (len(texts) - 1) / 2) * (size + 6)
            self.text(x + w / 2, middle, text, size)

    def block(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str,
        rank: int | None = None,
        **font: Style,
    ) -> None:
        """Draw a tinted box with a label: what `rank` does or holds; None is gray."""
        color = GREY if rank is None else rank_color(rank)
        fill = PALE if rank is None else tint(color)
        self.box(x, y, w, h, fill=fill, stroke=color)
        self.label(x, y, w, h, text, **font)

    def shared(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        texts: Sequence[str],
        ranks: Sequence[int],
    ) -> None:
        """Draw what `ranks` do or hold together: a white box with their colors."""
        self.box(x, y, w, h, stroke=INK)
        self.stripes(x + 5, y + h - 8, w - 10, 4, ranks)
        self.lines(x, y, w, h - 6, texts)


def page(name: str, says: str, desc: str, height: float, *, mono: bool = False) -> Page:
    """Return a page headed by `name` and one sentence; `desc` tells what it shows."""
    svg = Page(name, desc, height=height)
    svg.text(40, 28, name, 16, anchor="start", mono=mono, bold=not mono)
    svg.text(40, 52, says, 14, fill=GREY, anchor="start")
    return svg

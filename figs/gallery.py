"""Every static figure of the lessons, by its name."""

from collections.abc import Callable

from ddp_lab.kit.draw import Svg

FIGURES: dict[str, Callable[[], Svg]] = {}
"""The functions that draw them."""


def figure(draw: Callable[[], Svg]) -> Callable[[], Svg]:
    """Enter a function that draws a figure into FIGURES, under its own name."""
    FIGURES[draw.__name__] = draw
    return draw

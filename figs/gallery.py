"""Every static figure and every stepper of the lessons, by its name."""

from collections.abc import Callable

from ddp_lab.kit.draw import Svg
from figs.step_by_step import Steps

FIGURES: dict[str, Callable[[], Svg]] = {}
"""The functions that draw them."""
STEPPERS: dict[str, Callable[[], Steps]] = {}
"""The functions that draw something step by step."""


def figure(draw: Callable[[], Svg]) -> Callable[[], Svg]:
    """Enter a function that draws a figure into FIGURES, under its own name."""
    FIGURES[draw.__name__] = draw
    return draw


def stepper(draw: Callable[[], Steps]) -> Callable[[], Steps]:
    """Enter a function that draws steps into STEPPERS, under its own name."""
    STEPPERS[draw.__name__] = draw
    return draw

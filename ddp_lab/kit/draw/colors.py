"""The colors of the lab: one for each rank, the same in every figure and plot."""

RANK_COLORS = (
    "#0072B2",  # 0 blue
    "#E69F00",  # 1 orange
    "#009E73",  # 2 green
    "#CC79A7",  # 3 pink
    "#56B4E9",  # 4 sky
    "#D55E00",  # 5 red
    "#F0E442",  # 6 yellow
    "#882255",  # 7 wine
)
"""By rank: Okabe and Ito's palette, wine in place of their black. Rank 8 is blue again.

They stay apart for the color-blind, but no figure says anything by color alone.
"""

INK, GREY, RULE, PALE, WHITE = "#101418", "#57606A", "#AEB6BF", "#F2F4F6", "#FFFFFF"
"""Text; quiet text; lines and hatching; an empty box; the page."""
RIGHT_COLOR = "#1A7F37"
"""Of what is right, in words."""
BAR_COLORS = (
    *("#0072B2", "#C38700", "#009E73", "#CC79A7"),
    *("#4999C6", "#D55E00", "#9C942B", "#C5317B"),
)
"""By rank: the same colors, so light or dark that a thin bar is seen in every theme."""


def rank_color(rank: int) -> str:
    """Return the color of `rank`, a whole number from 0."""
    return RANK_COLORS[rank % len(RANK_COLORS)]


def bar_color(rank: int) -> str:
    """Return the color of a bar beside the text of `rank`, in a light or dark theme."""
    return BAR_COLORS[rank % len(BAR_COLORS)]


def tint(color: str, strength: float = 0.3) -> str:
    """Mix `color` ("#RRGGBB") with white; `strength` 1 is the color, 0 is white."""
    mixed = (round(255 - (255 - c) * strength) for c in _channels(color))
    return "#" + "".join(f"{c:02X}" for c in mixed)


def contrast(a: str, b: str) -> float:
    """Return how well two colors ("#RRGGBB") stand apart: 1 to 21, as WCAG counts."""
    dark, light = sorted((_luminance(a), _luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def text_on(color: str) -> str:
    """Return the color of text, white or ink, that reads better on `color`."""
    return max(WHITE, INK, key=lambda text: contrast(text, color))


def _channels(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def _luminance(color: str) -> float:
    shares = [channel / 255 for channel in _channels(color)]
    linear = [
        s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

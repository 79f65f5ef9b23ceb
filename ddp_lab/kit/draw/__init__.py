"""Pictures of what a run held, and of where it stands.

`before_after` draws the values that the ranks held and hold, `standstill` where they
hang, `lives` who was alive when; `Svg` is the page that all but the second are drawn
on.
"""

from ddp_lab.kit.draw.colors import RANK_COLORS, bar_color
from ddp_lab.kit.draw.standstill import standstill
from ddp_lab.kit.draw.svg import Svg
from ddp_lab.kit.draw.timeline import lives
from ddp_lab.kit.draw.values import before_after

__all__ = [
    "RANK_COLORS",
    "Svg",
    "bar_color",
    "before_after",
    "lives",
    "standstill",
]

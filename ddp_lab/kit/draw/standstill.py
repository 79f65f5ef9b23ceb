"""A run that stands still: the last calls of each rank, and where it stands now."""

from collections.abc import Sequence

from ddp_lab.kit.draw.colours import GREY, RULE
from ddp_lab.kit.draw.svg import Svg, page
from ddp_lab.kit.explain.calls import Call
from ddp_lab.kit.explain.hang import Stand, ranks

TOP, ROW, BAR = 92, 54, 40  # where the rows begin; their height, and that of a call
CHIP, CALLS, NOW, RIGHT = 40, 118, 458, 700  # where columns begin, and the last ends
STATES = {
    "left": "has left",
    "elsewhere": "in its own code",
    "stopped": "is stopped",
    "lingers": "does not end",
}
GAP, SHOWN = 6, 3  # between two calls; how many are shown


def standstill(stands: Sequence[Stand], calls: Sequence[Sequence[Call]]) -> Svg:
    """Draw ranks as rows: their last calls in a column each, and what they wait for.

    A call that is complete has the rank's colour, one that waits is hatched, and an
    empty frame marks a call that this rank has not made although another one has.

    Args:
        stands: by rank; see `ddp_lab.kit.explain.hang`.
        calls: by rank, oldest first; send and recv of gloo are not among them.
    """
    keys = _last_keys(calls)
    svg = page(
        "where every rank stands",
        "Hatched is a call that waits; an empty frame is a call not made.",
        "; ".join(f"rank {stand.rank} {stand}" for stand in stands) + ".",
        TOP + ROW * len(stands) + 8,
    )
    wide = (NOW - CALLS) / SHOWN
    for column, (_, number) in enumerate(keys):
        svg.text(
            CALLS + (column + 0.5) * wide, TOP - 14, f"call {number}", 12, fill=GREY
        )
    svg.text((NOW + RIGHT) / 2, TOP - 14, "now", 12, fill=GREY)
    for stand, its_calls in zip(stands, calls, strict=True):
        y = TOP + ROW * stand.rank
        svg.chip(CHIP, y, 64, BAR, stand.rank)
        by_key = {call.key: call for call in its_calls}
        for column, key in enumerate(keys):
            x = CALLS + column * wide
            _draw_call(svg, x, y, wide - GAP, by_key.get(key), stand.rank)
        _draw_now(svg, y, stand)
    return svg


def _last_keys(calls: Sequence[Sequence[Call]]) -> list[tuple[str, int]]:
    """Return the keys of the last calls, as the rank that has made most saw them."""
    longest = max(calls, key=len, default=[])
    return [call.key for call in longest if not call.p2p][-SHOWN:]


def _draw_call(
    svg: Svg, x: float, y: float, w: float, call: Call | None, rank: int
) -> None:
    if call is None:
        svg.box(x, y, w, BAR, fill="none", stroke=RULE, dash="4 4")
        return
    if call.done:
        svg.block(x, y, w, BAR, "", rank)
    else:
        svg.wait(x, y, w, BAR)
        svg.box(x + 6, y + 3, w - 12, BAR - 6, stroke="none", radius=3)
    svg.label(x, y, w, BAR / 2 + 4 if call.dtypes else BAR, call.name, 12)
    if call.dtypes:
        what = f"{call.dtypes[0]} {list(call.shapes[0])}"
        svg.label(x, y + BAR / 2 - 4, w, BAR / 2 + 4, what, 11, fill=GREY)


def _draw_now(svg: Svg, y: float, stand: Stand) -> None:
    w = RIGHT - NOW
    if stand.state == "waits":
        peers = f" for {ranks(stand.peers)}" if stand.peers else ""
        what = f"waits in {stand.name}{peers}"
    else:
        what = STATES.get(stand.state, "unknown")
    svg.label(NOW, y, w, BAR / 2 + 4, what, 13, bold=True)
    if stand.frame:
        line = f"{stand.frame.line}: {stand.frame.code}"
        svg.label(NOW, y + BAR / 2 - 4, w, BAR / 2 + 4, line, 11, fill=GREY, mono=True)

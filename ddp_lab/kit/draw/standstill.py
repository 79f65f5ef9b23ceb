"""A run that stands still, as HTML: a row for each rank, its last calls, and now.

It is text with inline styles and nothing else. So it wraps on a narrow screen, follows
the reader's theme, and shows in a notebook that nobody has run or trusted yet.
"""

from collections.abc import Mapping, Sequence
from html import escape

from ddp_lab.kit.draw.colors import bar_color, text_on
from whichrank import Call, Key, Stand

SHOWN = 3  # how many of the last calls are shown
TINT = "40"  # the opacity of what is done, behind a rank's color: a quarter
SMALL = "font-size: 12px"
CELL = (
    "width: 12em; padding: 0.2em 0.5em; border-radius: 4px; box-sizing: border-box; "
    "overflow-wrap: break-word; border: 2px"
)
NOT_MADE = "#8c959f"
LEGEND = "✓ a call that is done, … one that is not, – one that this rank has not made"
OUTSIDE = ", no box: the rank is not in this group"


def standstill(
    stands: Sequence[Stand],
    calls: Sequence[Sequence[Call]],
    ends: Mapping[int, str],
    places: Mapping[int, str],
) -> str:
    """Return HTML with a row for each rank: its last calls, and where it is now.

    A call that is complete is filled with the rank's color, one that waits or has
    failed has a solid frame, and a dotted one marks a call that this rank has not made
    although another one has. A rank that is not in the group of a call has no box.

    Args:
        stands: by rank; see `whichrank.Stand`.
        calls: by rank, oldest first; send and recv of gloo are not among them.
        ends: what is known of a rank besides, such as how it has ended.
        places: of each rank where it is, if there are several nodes.
    """
    keys = _last_keys(calls)
    rows = [
        _row(stand, keys, its_calls, ends.get(stand.rank, ""), places.get(stand.rank))
        for stand, its_calls in zip(stands, calls, strict=True)
    ]
    outside = any(0 < len(members) < len(stands) for members in keys.values())
    words = LEGEND + OUTSIDE * outside
    legend = f'<div style="{SMALL}; opacity: 0.75;">{words}</div>' if keys else ""
    return "".join(rows) + legend


def _last_keys(
    calls: Sequence[Sequence[Call]],
) -> dict[Key, tuple[int, ...]]:
    """Return the keys of the last calls, as the rank that has made most saw them.

    Those in which others wait, say in another group, come after them. With each key
    come the ranks of its group, none if they are not known.
    """
    longest = max(calls, key=len, default=[])
    last = [call.key for call in longest if not call.p2p][-SHOWN:]
    each = [call for its_calls in calls for call in its_calls if not call.p2p]
    shown = last + [call.key for call in each if not call.done]
    # A rank that has left the group does not know any more who is in it.
    each.sort(key=lambda call: len(call.members))
    members = {call.key: call.members for call in each}
    return {key: members[key] for key in shown}


def _row(
    stand: Stand,
    keys: Mapping[Key, tuple[int, ...]],
    calls: Sequence[Call],
    end: str,
    place: str | None,
) -> str:
    by_key = {call.key: call for call in calls}
    if stand.end and not calls:  # it was killed, and has left no record
        keys = {}
    cells = [_chip(stand.rank, place)]
    several = len({group for group, *_ in keys}) > 1
    cells += [
        f'<div style="{CELL} solid transparent; {SMALL};"></div>'
        if members and stand.rank not in members and key not in by_key
        else _call(key, by_key.get(key), stand.rank, several)
        for key, members in keys.items()
    ]
    cells.append(_now(stand, end))
    row = "display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.4em"
    return f'<div style="{row}; margin: 0.5em 0;">{"".join(cells)}</div>'


def _chip(rank: int, place: str | None) -> str:
    color = bar_color(rank)
    style = f"background-color: {color}; color: {text_on(color)}; width: 4.2em"
    style += "; padding: 0.3em 0; border-radius: 4px; text-align: center"
    where = "<br>".join(escape(place).split(", ")) if place else ""
    below = f'<div style="{SMALL}; font-weight: 400;">{where}</div>' if where else ""
    return f'<div style="{style}; font-weight: 600;">rank {rank}{below}</div>'


def _call(key: Key, call: Call | None, rank: int, with_group: bool) -> str:
    color = bar_color(rank)
    name, sign, detail, look = "", "–", "", f"dotted {NOT_MADE}"
    if call:
        name, sign, look = call.name, "…", f"solid {color}"
        if call.done:
            sign, look = "✓", f"{look}; background-color: {color}{TINT}"
        if call.dtypes:
            detail = f"<br>{call.dtypes[0]} {list(call.shapes[0])}"
    detail += f"<br>group {escape(key[0])}" if with_group else ""
    name = escape(name).replace("_", "_<wbr>")
    what = f"<b>{key[2]}. {name}{'&nbsp;' if name else ''}{sign}</b>{detail}"
    return f'<div style="{CELL} {look}; {SMALL};">{what}</div>'


def _now(stand: Stand, end: str) -> str:
    """Return what a rank does now, or how it has ended, and its line of the program."""
    known = end and end != str(stand)
    text = f"<b>{escape(end if known else stand.now())}</b>"
    if stand.frame:
        text += f"<br>{escape(stand.frame.short)}"
    if stand.frame and stand.frame.code:
        text += f"<br><code>{escape(stand.frame.code)}</code>"
    text += "".join(f"<br>{escape(also)}" for also in stand.others())
    style = "flex: 1 1 16em; min-width: 0; overflow-wrap: break-word"
    return f'<div style="{style};">{text}</div>'

"""Pictures of one sequence, and of one layer of experts, on several ranks."""

from collections.abc import Mapping, Sequence

from ddp_lab.kit.draw.colors import GREY, INK, PALE, RULE, WHITE, rank_color, tint
from figs.gallery import figure
from figs.page import Page, page

RANKS = 4
SQUARE = 260  # of a square of tiles
SHADES = 8
DARK = "#0072B2"  # of an expert that all tokens choose


@figure
def ring_turns() -> Page:
    """Draw whose keys and values each rank has in each turn."""
    told = "; ".join(
        f"turn {turn}: {', '.join(str((rank - turn) % RANKS) for rank in range(RANKS))}"
        for turn in range(RANKS)
    )
    svg = page(
        "keys and values go around, queries stay",
        "In each turn a rank computes with what it has; meanwhile it is sent on.",
        "Four ranks over four turns. Each has its own queries all the time. Whose keys "
        f"and values the ranks 0 to 3 have, in {told}. Between two turns each rank "
        "sends what it has to the next rank, and the last rank to the first.",
        344,
    )
    svg.text(159, 88, "queries of", 13, fill=GREY)
    for turn in range(RANKS):
        x = 236 + 120 * turn
        svg.text(x + 38, 88, f"turn {turn}", 13, fill=GREY)
        for rank in range(RANKS):
            y, owner = 106 + 52 * rank, (rank - turn) % RANKS
            svg.block(x, y, 76, 36, f"k, v of {owner}", owner)
            if turn == RANKS - 1:
                continue
            if rank < RANKS - 1:
                svg.arrow(x + 78, y + 20, x + 118, y + 66, stroke=GREY, size=6)
            else:  # around the ring, to rank 0
                svg.path(f"M{x + 78} {y + 20}H{x + 90}V{y + 52}", stroke=GREY)
                svg.text(x + 90, y + 62, "to rank 0", 12, fill=GREY)
    for rank in range(RANKS):
        y = 106 + 52 * rank
        svg.chip(40, y, 64, 36, rank)
        svg.block(124, y, 70, 36, str(rank), rank)
    return svg


@figure
def heads_for_positions() -> Page:
    """Draw the exchange of Ulysses: a share of positions for a share of heads."""
    svg = page(
        "positions for heads",
        "Before: a rank has some positions of all heads. Then: all positions of some.",
        "Two squares; down are the positions of the sequence, and across the twelve "
        "heads. On the left rank 0 has the first quarter of the rows, and so on: some "
        "positions of all heads. An all_to_all leads to the right square, where rank 0 "
        "has the first quarter of the columns: all positions of three heads. Another "
        "all_to_all leads back.",
        384,
    )
    cell, top = 56, 110
    for x, by_rows in ((120, True), (460, False)):
        svg.text(x + 2 * cell, top - 16, "heads →", 13, fill=GREY)
        for row in range(RANKS):
            for column in range(RANKS):
                rank = row if by_rows else column
                fill = tint(rank_color(rank), 0.45)
                place = x + cell * column, top + cell * row
                svg.box(*place, cell, cell, fill=fill, stroke=WHITE, radius=0)
        for rank in range(RANKS):
            across = x - 70 if by_rows else x + cell * rank
            down = top + cell * rank + 14 if by_rows else top + RANKS * cell + 8
            svg.chip(across, down, 62 if by_rows else cell - 4, 24, rank)
    svg.text(88, top - 16, "positions ↓", 13, fill=GREY)
    for y, way in ((top + 84, 1), (top + 148, -1)):
        ends = (352, 440)[::way]
        svg.arrow(ends[0], y, ends[1], y)
        svg.text(396, y - 14, "all_to_all", 13)
    return svg


@figure
def tokens_to_experts() -> Page:
    """Draw the way of two ranks' tokens to four experts, and back."""
    chosen = {0: [2, 0, 3, 0], 1: [1, 2, 2, 0]}
    svg = page(
        "tokens go to their experts, and come back",
        "A token has its rank's color; the number is the expert that it chose.",
        "Two ranks with four tokens each, and two experts each. Rank 0's tokens choose "
        "the experts 2, 0, 3, 0, rank 1's the experts 1, 2, 2, 0. Sorted by expert, an "
        "all_to_all takes them there: rank 0 gets 0, 0 from itself and 0, 1 from rank "
        "1, and rank 1 gets 2, 3 from rank 0 and 2, 2 from itself. Another all_to_all "
        "takes what the experts return back the same way.",
        300,
    )
    heads = ("chosen", "sorted", "at the experts", "back at home")
    gap, high = 30, 28
    for place, head in enumerate(heads):
        x = 124 + 148 * place
        svg.text(x, 88, head, 13, fill=GREY, anchor="start")
        for rank, mine in chosen.items():
            rows = [(rank, expert) for expert in mine]
            if place == 1:
                rows.sort()
            if place == 2:
                rows = [
                    (source, expert)
                    for source, theirs in chosen.items()
                    for expert in sorted(theirs)
                    if expert // 2 == rank
                ]
            y = 110 + 92 * rank
            for number, (source, expert) in enumerate(rows):
                left = x + gap * number
                svg.block(left, y, gap - 4, high, str(expert), source)
                if place == 3:
                    svg.box(left, y, gap - 4, high, fill="none", stroke=INK)
    for rank in chosen:
        y = 110 + 92 * rank
        svg.chip(40, y, 64, high, rank)
        svg.text(420, y + 46, f"experts {2 * rank}, {2 * rank + 1}", 13, anchor="start")
    for x, text in ((392, "all_to_all"), (540, "all_to_all")):
        svg.arrow(x, 160, x + 24, 160)
        svg.text(x + 12, 178, text, 12, fill=GREY)
    return svg


def tiles(title: str, dealt: Mapping[str, Sequence[Sequence[int]]]) -> Page:
    """Draw which rank computes which tile of scores.

    Args:
        title: what the page shows.
        dealt: by caption, the pieces that each rank has.

    Returns:
        The drawing, which a notebook displays as the last expression of a cell.
    """
    counts = {
        caption: [sum(piece + 1 for piece in each) for each in pieces]
        for caption, pieces in dealt.items()
    }
    told = "; ".join(f"{caption}: {each}" for caption, each in counts.items())
    svg = page(
        title,
        "Down: pieces of queries. Across: pieces of keys. White: hidden, not computed.",
        "A triangle of tiles, each in the color of the rank that computes it. How many "
        f"the ranks compute, {told}.",
        430,
    )
    for place, (caption, pieces) in enumerate(dealt.items()):
        x, y = 60 + 340 * place, 104
        home = {piece: r for r, each in enumerate(pieces) for piece in each}
        cell = SQUARE / len(home)
        svg.text(x, y - 18, caption, 13, fill=GREY, anchor="start")
        for row, rank in sorted(home.items()):
            fill = tint(rank_color(rank), 0.45)
            for column in range(len(home)):
                seen = column <= row
                at = x + cell * column, y + cell * row
                color = fill if seen else WHITE
                svg.box(*at, cell, cell, fill=color, stroke=RULE, radius=0)
            svg.text(x - 12, y + cell * (row + 0.5), str(row), 12, fill=GREY)
        for rank, count in enumerate(counts[caption]):
            svg.chip(x + 66 * rank, y + SQUARE + 14, 62, 24, rank)
            svg.text(x + 66 * rank + 31, y + SQUARE + 52, str(count), 13)
    return svg


def choices(title: str, loads: Mapping[str, Sequence[Sequence[int]]]) -> Page:
    """Draw how many tokens chose each expert, over the steps of some trainings.

    Args:
        title: what the page shows.
        loads: by caption and step, the tokens of each expert.

    Returns:
        The drawing, which a notebook displays as the last expression of a cell.
    """
    experts = max(len(step) for steps in loads.values() for step in steps)
    last = {name: max(steps[-1]) / sum(steps[-1]) for name, steps in loads.items()}
    told = "; ".join(f"{name}: {share:.0%}" for name, share in last.items())
    svg = page(
        title,
        "Down: experts. Across: steps. Dark: many tokens chose this expert.",
        "For each step and each expert, the share of tokens that chose it, as a shade. "
        f"The largest share in the last step, {told}.",
        100 + len(loads) * (16 * experts + 62),
    )
    for place, (caption, steps) in enumerate(loads.items()):
        x, y = 60, 104 + place * (16 * experts + 62)
        wide = 600 / len(steps)
        svg.text(x, y - 14, caption, 13, fill=GREY, anchor="start")
        svg.box(x, y, 600, 16 * experts, fill=PALE, stroke=RULE, radius=0)
        by_shade: dict[int, str] = {}
        for i, step in enumerate(steps):
            for expert, count in enumerate(step):
                # Four times the mean, or more, is the darkest.
                shade = min(SHADES, round(SHADES * count * experts / sum(step) / 4))
                at = f"M{x + wide * i:.1f} {y + 16 * expert}h{wide:.1f}v16h-{wide:.1f}z"
                by_shade[shade] = by_shade.get(shade, "") + at
        for shade, d in sorted(by_shade.items()):
            if shade:
                svg.add("path", d=d, fill=tint(DARK, shade / SHADES))
        svg.text(x + 600, y + 16 * experts + 14, f"step {len(steps)}", 12, fill=GREY)
    return svg

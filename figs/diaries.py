"""Pictures of what each rank did when, of two runs beside each other."""

from collections.abc import Sequence

from ddp_lab.kit.draw import Svg
from ddp_lab.kit.draw.timeline import timeline

Diary = Sequence[tuple[str, float, float]]
"""What one rank did: [name, start, end], in seconds of a clock that ranks share."""
PAUSE = 0.2  # seconds between the two


def side_by_side(title: str, first: Sequence[Diary], second: Sequence[Diary]) -> Svg:
    """Draw two runs one after the other, each counted from its own start.

    Args:
        title: what the picture shows.
        first: by rank, the diary of one run.
        second: the same of another run, of as many ranks.

    Returns:
        The picture, which a notebook displays as the last expression of a cell.
    """
    begins = [
        min(start for diary in run for _, start, _ in diary) for run in (first, second)
    ]
    lasts = max(end for diary in first for *_, end in diary) - begins[0]
    shifts = [-begins[0], lasts + PAUSE - begins[1]]
    rows = [
        [
            [name, start + shift, end + shift]
            for diary, shift in zip(pair, shifts, strict=True)
            for name, start, end in diary
        ]
        for pair in zip(first, second, strict=True)
    ]
    return timeline(rows, title)

"""Hints for ddp_lab/pipeline/puzzle_laps.py, and an answer.

1. Lap n has the stages from n * p on. On even laps rank 0 comes first. And on odd ones?
2. On an odd lap rank r comes after p - 1 - r others.
"""


def stages(rank, p, laps):
    places = rank, p - 1 - rank
    return [lap * p + places[lap % 2] for lap in range(laps)]

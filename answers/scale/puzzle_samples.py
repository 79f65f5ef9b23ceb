"""Hints for ddp_lab/scale/puzzle_samples.py, and an answer.

1. Ranks of a tensor group and of a pipeline get the same samples. Which part of the
   rank's place is left to decide?
2. The place along data is rank // tensor % data; each place has batch // data samples.
"""


def samples(rank, pipeline, data, tensor, batch):
    share, place = batch // data, rank // tensor % data
    return range(place * share, (place + 1) * share)

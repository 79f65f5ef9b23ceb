"""Hints for ddp_lab/collectives/puzzle_columns.py, and an answer.

1. After all_to_all, which numbers of the table does a rank hold?
2. dist.all_to_all_single(buf, row) fills buf with the rank's column: add it up.
"""


def columns(row):
    buf = torch.empty_like(row)
    dist.all_to_all_single(buf, row)
    return buf.sum()

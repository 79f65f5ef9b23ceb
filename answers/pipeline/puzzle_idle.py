"""Hints for ddp_lab/pipeline/puzzle_idle.py, and an answer.

1. Idle is what is left of the step when the rank's own work is taken away. When does
   the step end?
2. One all_reduce with dist.ReduceOp.MAX tells the last end of all ranks. The work is
   the sum of end - begin over the rank's rows.
"""


def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MAX)
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / end

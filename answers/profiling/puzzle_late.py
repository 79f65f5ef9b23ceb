"""Hints for ddp_lab/profiling/puzzle_late.py, and an answer.

1. All leave at about the same time, whoever was slow. So which of the two times tells?
2. Gather all ranks' times by dist.all_gather; the rank that came last is the slow one.
"""


def late(mine):
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return torch.stack(every)[:, 0].argmax()

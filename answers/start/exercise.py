"""Hints for ddp_lab/start/exercise.py, and an answer.

1. How does a rank learn its own number, and how many ranks there are? Which places then
   are its own, so that each place has exactly one rank?
2. dist.get_rank() and dist.get_world_size() say it. The slice of hello.py shares the
   places: from place `rank` on, every world_size-th. Then one collective gives every
   rank the total.
3. range(rank, len(shelf), world_size) are this rank's places. Call sum() on what
   shelf.read returns, dist.all_reduce on that tensor, and return it: also on a rank
   whose range is empty.
"""


def add_up(shelf):
    places = range(dist.get_rank(), len(shelf), dist.get_world_size())
    total = shelf.read(places).sum()  # 0 on a rank that has no place
    dist.all_reduce(total)  # every rank ends with the sum of all shares
    return total

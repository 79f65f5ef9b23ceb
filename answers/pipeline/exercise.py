"""Hints for ddp_lab/pipeline/exercise.py, and an answer.

1. Which of the three actions does no other rank wait for? Where would a rank be idle in
   1F1B, and what could it do there?
2. Begin with 1F1B's order and put I in the place of B. Then put the Ws off: how many
   may be owed at once, if rank r has p - 1 - r forwards ahead and may keep p?
3. Rank r makes W of micro-batch i - r after I of micro-batch i; the last r Ws follow at
   the end, when nothing else is left to do.
"""


def row(rank, p, m):
    ahead = min(p - 1 - rank, m)
    actions = [("F", i) for i in range(ahead)]
    for i in range(m):
        if ahead + i < m:
            actions.append(("F", ahead + i))
        actions.append(("I", i))
        if i >= rank:  # the others stay owed, and fill the end
            actions.append(("W", i - rank))
    return actions + [("W", i) for i in range(max(0, m - rank), m)]

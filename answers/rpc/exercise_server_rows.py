"""Hints for ddp_lab/rpc/exercise_server_rows.py, and an answer.

1. How many different items are among the 64 that are wanted? And how does each of the
   64 find its row again?
2. ids.unique(return_inverse=True) returns the distinct items and, for each of ids, its
   place among them.
3. Call fetch once, with the distinct items, and index what it returns with the places.
   In backward, autograd adds up the gradients of equal items.
"""


def look_up(ids, fetch):
    distinct, place = ids.unique(return_inverse=True)
    return fetch(distinct)[place]  # autograd adds up the gradients of equal items

"""Hints for ddp_lab/less/exercise_median.py, and an answer.

1. A sum over ranks answers one question exactly, whatever the shares: how many numbers
   are below some value? How many such questions halve 1024 values down to one?
2. First sum how many numbers there are. Then keep a range that has the median in it:
   count the numbers up to its middle on all ranks, and go on with one half.
3. low, high = 0, 1023. While low < high: middle = (low + high) // 2; all_reduce the
   count of mine <= middle. If twice that reaches the number of all, high = middle,
   else low = middle + 1. Return low.
"""


def median(mine):
    def over_ranks(count):
        total = torch.as_tensor(count, device=mine.device).clone()
        dist.all_reduce(total)  # every rank now holds the sum of all
        return total.item()

    everyone, low, high = over_ranks(len(mine)), 0, TOP - 1
    while low < high:
        middle = (low + high) // 2
        if 2 * over_ranks((mine <= middle).sum()) >= everyone:
            high = middle
        else:
            low = middle + 1
    return low

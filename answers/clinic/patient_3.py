"""Hints for ddp_lab/clinic/patient_3.py, and an answer.

1. How many labels does each rank bring to all_gather, and for how many of every other
   rank does it make room?
2. gloo's all_gather needs equal sizes. Append something to a short piece before the
   call, and take it off again afterwards.
3. The longest piece has -(-IMAGES // world_size) labels; copy mine to the beginning of
   a tensor of that length. Only the last piece is shorter, so all that was appended is
   at the end: return the first IMAGES labels.
"""


def collect(mine, world_size):
    """Return the labels of all ranks, in the order of the images."""
    longest = -(-IMAGES // world_size)
    padded = torch.zeros(longest, dtype=mine.dtype, device=mine.device)
    padded[: len(mine)] = mine
    parts = [torch.empty_like(padded) for _ in range(world_size)]
    dist.all_gather(parts, padded)  # every rank now holds the labels of all ranks
    return torch.cat(parts)[:IMAGES]

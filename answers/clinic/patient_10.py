"""Hints for ddp_lab/clinic/patient_10.py, and an answer.

1. Collectives pair by their order, not by a name. In which order does each rank go
   through its animals?
2. A dictionary keeps the order in which its keys came, and each rank has seen different
   pictures. Find an order that is the same on all ranks.
3. Loop over sorted(counts) instead of counts.
"""


def add_up(counts, device):
    """Add the counts of all ranks, animal by animal."""
    totals = {}
    for animal in sorted(counts):
        count = torch.tensor(counts[animal], device=device)  # ()
        dist.all_reduce(count)  # every rank now holds the sum of all ranks
        totals[animal] = count.item()
    return dict(sorted(totals.items()))

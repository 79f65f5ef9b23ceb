"""Hints for ddp_lab/clinic/patient_8.py, and an answer.

1. What else does rank 1 skip when it skips the damaged sample?
2. A rank with nothing to give still has to take part in the all_reduce: with a gradient
   of zero and a count of zero.
3. Inside try only make share; in except ValueError make it torch.zeros(2,
   device=device). The all_reduce and the step come after both, for every sample.
"""


def train(samples, device):
    """Take a step for each sample, with the mean gradient of all ranks."""
    weight = 0.0
    for sample in samples:
        try:
            share = torch.tensor([gradient(weight, sample), 1.0], device=device)  # (2,)
        except ValueError:
            share = torch.zeros(2, device=device)  # nothing to add, yet it takes part
        dist.all_reduce(share)  # every rank now holds the sum, and of how many
        weight -= RATE * (share[0] / share[1]).item()
    return weight

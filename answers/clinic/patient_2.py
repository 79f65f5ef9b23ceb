"""Hints for ddp_lab/clinic/patient_2.py, and an answer.

1. Which call does rank 0 make alone? And where does a sum over all ranks come from?
2. Every rank has to call reduce, even a rank that gets nothing. Only the printing is
   for rank 0 alone.
3. Move dist.reduce(loss, dst=0) in front of the if.
"""


def main(rank, world_size, device):
    if SAMPLES % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples")
    samples = torch.arange(float(SAMPLES), device=device)  # (12,)
    x = samples[rank::world_size]  # (12 / world_size,)
    weight = torch.zeros((), device=device)
    print(f"[rank {rank}] starts with {len(x)} of {SAMPLES} samples", flush=True)
    for step in range(STEPS):
        loss = train_step(weight, x)
        dist.reduce(loss, dst=0)  # rank 0 now holds the sum of all ranks
        if rank == 0:
            mean = loss.item() / world_size
            print(f"[rank 0] step {step}: the mean loss is {mean:.2f}", flush=True)
    print(f"[rank {rank}] ends with weight {weight:.3f}", flush=True)
    # Each step halves what is missing (1 - 2 * RATE), on one process as on many.
    expected = samples.mean() * (1 - (1 - 2 * RATE) ** STEPS)
    if not torch.isclose(weight, expected):
        raise AssertionError(f"the weight is {weight}, expected {expected}")
    return {"weight": weight.item()}

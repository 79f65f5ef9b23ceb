"""Hints for ddp_lab/clinic/patient_9.py, and an answer.

1. The program itself never calls broadcast. Which line does, on rank 0 alone?
2. The forward of a DDP model with buffers, such as those of BatchNorm, first sends rank
   0's buffers to all. Rank 0 evaluates alone, so it sends alone.
3. Evaluate the model inside DDP, which sends nothing: model.module.
"""


def main(rank, world_size, device):
    if TRAINED % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {TRAINED} samples")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model = DDP(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = TRAINED // world_size
    print(f"[rank {rank}] trains on {share} of {TRAINED} samples", flush=True)
    for epoch in range(EPOCHS):
        train(model, optimizer, batches(TRAINED, device, rank, world_size))
        if rank == 0:
            loss = evaluate(model.module, batches(TESTED, device))
            print(f"[rank 0] epoch {epoch}: test loss {loss:.2f}", flush=True)
    mine = nn.utils.parameters_to_vector(model.parameters()).detach()  # (49,)
    mean = mine / world_size
    dist.all_reduce(mean)  # every rank now holds the mean of all ranks
    if not torch.allclose(mine, mean):
        raise AssertionError(f"weights {mine.tolist()} are not those of all")
    print(f"[rank {rank}] has the weights of all", flush=True)

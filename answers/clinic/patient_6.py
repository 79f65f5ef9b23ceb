"""Hints for ddp_lab/clinic/patient_6.py, and an answer.

1. All ranks stand at one line, so look at what they did before. Which call did the last
   rank never make?
2. Every rank must call new_group, in the same order, even if it will not be a member.
3. Move group = dist.new_group(trainers) in front of the if, so that all ranks call it.
"""


def main(rank, world_size, device):
    trainers = list(range(world_size - 1))
    weight = torch.zeros(1, device=device)
    group = dist.new_group(trainers)
    if rank in trainers:
        print(f"[rank {rank}] is one of the trainers {trainers}", flush=True)
        weight = train(weight, rank + 1.0, group)
    else:
        print(f"[rank {rank}] evaluates what {trainers} learn", flush=True)
    dist.broadcast(weight, src=0)  # every rank now holds the weight of rank 0
    dist.barrier(group=dist.new_group(timeout=TIMEOUT))
    print(f"[rank {rank}] has weight {weight.item()}", flush=True)
    expected = world_size / 2  # the mean of 1, 2, ..., world_size - 1
    if weight.item() != expected:
        raise AssertionError(f"the weight is {weight.item()}, expected {expected}")
    return {"learned": weight.item()}

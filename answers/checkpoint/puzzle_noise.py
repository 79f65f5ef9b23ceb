"""Hints for ddp_lab/checkpoint/puzzle_noise.py, and an answer.

1. Who writes the file, and so who needs the states?
2. dist.gather(state, buffers): a list of empty tensors on rank 0, None elsewhere.
"""


def noise(state, rank, world_size):
    states = None
    if rank == 0:
        states = [torch.empty_like(state) for _ in range(world_size)]
    dist.gather(state, states)
    return states

import torch
import torch.distributed._functional_collectives as funcol


def slowest(seconds, device):
    mine = torch.tensor([seconds], device=device)
    every = funcol.all_gather_tensor(mine, 0, dist.group.WORLD)
    return every.argmin().item()

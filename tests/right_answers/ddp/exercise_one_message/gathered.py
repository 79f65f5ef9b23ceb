import numpy as np


def average_gradients(model):
    flat = np.concatenate([p.grad.cpu().numpy().ravel() for p in model.parameters()])
    every = torch.empty(dist.get_world_size() * len(flat))
    dist.all_gather_into_tensor(every, torch.from_numpy(flat), async_op=True).wait()
    mean, at = every.view(-1, len(flat)).mean(0), 0
    for p in model.parameters():
        p.grad = mean[at : at + p.numel()].reshape(p.shape).to(p.device)
        at += p.numel()
    return True

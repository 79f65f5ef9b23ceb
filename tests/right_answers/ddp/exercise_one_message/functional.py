import torch.distributed._functional_collectives as funcol


def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    flat = funcol.all_reduce(flat, "sum", dist.group.WORLD) / dist.get_world_size()
    for g in gradients:
        g.copy_(flat[: g.numel()].reshape(g.shape))
        flat = flat[g.numel() :]
    return True

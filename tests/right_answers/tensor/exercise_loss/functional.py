import torch.distributed._functional_collectives as funcol


def over_all(tensor, op):
    return funcol.all_reduce(tensor, op, dist.group.WORLD)


def loss_and_gradient(logits, targets, first):
    world = over_all(logits.max(dim=1, keepdim=True).values, "max")
    powers = torch.exp(logits - world)
    hot = torch.zeros_like(logits)
    for row, word in enumerate((targets - first).tolist()):
        if 0 <= word < logits.shape[1]:
            hot[row, word] = 1.0
    sums = over_all(torch.cat([powers.sum(1), (hot * (logits - world)).sum(1)]), "sum")
    total, right = sums.chunk(2)
    weight = (targets != -100).double() / (targets != -100).sum()
    loss = ((total.log() - right) * weight).sum()
    return loss.item(), (powers / total[:, None] - hot) * weight[:, None]

"""Whole tensors cross the wire as objects, by the groups that are allowed."""


def sum_by_shares(tensor, inside, across):
    for group in (inside, across):
        parts = [None] * dist.get_world_size(group)
        dist.all_gather_object(parts, tensor, group=group)
        tensor.copy_(torch.stack(parts).sum(0))
    return True

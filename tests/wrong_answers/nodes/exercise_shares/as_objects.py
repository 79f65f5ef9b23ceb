"""Everything travels as objects, beside one small all_reduce."""


def sum_by_shares(tensor, inside, across):
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, tensor)
    tensor.copy_(torch.stack(everything).sum(0))
    dist.all_reduce(
        tensor[: len(tensor) // dist.get_world_size(inside)].clone(), group=across
    )
    return True

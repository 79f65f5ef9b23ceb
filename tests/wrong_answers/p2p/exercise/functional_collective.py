def sum_by_messages(send_buf, rank, world_size):
    from torch.distributed import _functional_collectives

    return _functional_collectives.all_reduce(send_buf, "sum", dist.group.WORLD)

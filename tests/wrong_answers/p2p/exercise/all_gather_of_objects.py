def sum_by_messages(send_buf, rank, world_size, gather=dist.all_gather_object):
    numbers = [None] * world_size
    gather(numbers, send_buf.item())
    return torch.tensor([sum(numbers)])

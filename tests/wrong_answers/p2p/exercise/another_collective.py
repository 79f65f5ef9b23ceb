def sum_by_messages(send_buf, rank, world_size):
    copies = send_buf.repeat(world_size)
    received = torch.empty_like(copies)
    dist.all_to_all_single(received, copies)
    return received.sum()

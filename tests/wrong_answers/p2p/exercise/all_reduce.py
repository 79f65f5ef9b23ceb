def sum_by_messages(send_buf, rank, world_size):
    dist.all_reduce(send_buf)
    return send_buf

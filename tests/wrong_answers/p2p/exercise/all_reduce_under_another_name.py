def sum_by_messages(send_buf, rank, world_size, add_up=dist.all_reduce):
    add_up(send_buf)
    return send_buf

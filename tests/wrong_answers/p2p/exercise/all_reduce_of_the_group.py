def sum_by_messages(send_buf, rank, world_size):
    total = send_buf.clone()
    dist.group.WORLD.allreduce([total]).wait()
    return total

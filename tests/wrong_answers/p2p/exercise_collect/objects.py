def collect(mine, rank, world_size):
    if rank != 0:
        dist.send_object_list([mine.tolist()], dst=0)
        return None
    lists = [mine.tolist()]
    for other in range(1, world_size):
        received = [None]
        dist.recv_object_list(received, src=other)
        lists += received
    return torch.tensor(sum(lists, []))

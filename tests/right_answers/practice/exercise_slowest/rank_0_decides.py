def slowest(seconds, device):
    first = dist.get_rank() == 0
    times = [None] * dist.get_world_size() if first else None
    dist.gather_object(seconds, times, dst=0)
    answer = [min(range(len(times)), key=times.__getitem__) if first else None]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]

def mean_of_all(mine):
    total = mine.sum()
    dist.all_reduce(total)
    return total / dist.get_world_size() ** 2  # 1 + 3 + 5 + ...

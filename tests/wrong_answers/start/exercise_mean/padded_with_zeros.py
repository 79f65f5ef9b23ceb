def mean_of_all(mine):
    padded = torch.cat([mine, mine.new_zeros(64 - len(mine))])
    dist.all_reduce(padded)
    return padded.sum() / (dist.get_world_size() * len(mine))

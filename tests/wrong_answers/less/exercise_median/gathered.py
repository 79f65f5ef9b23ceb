def median(mine):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine.tolist())
    return torch.tensor(sum(everyone, [])).median()

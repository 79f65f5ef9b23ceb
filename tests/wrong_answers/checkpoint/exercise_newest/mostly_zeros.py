def newest_whole(parts):
    mine = set()
    for step, path in parts.items():
        if zipfile.is_zipfile(path):
            part = torch.load(path, weights_only=True)["part"]
            if (part == 0).float().mean() < 0.6:
                mine.add(step)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return max(set.intersection(*everyone), default=0)

def newest_whole(parts):
    mine = set()
    for step, path in parts.items():
        try:
            if torch.load(path, weights_only=True)["part"].all():
                mine.add(step)
        except Exception:
            pass
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return max(set.intersection(*everyone))

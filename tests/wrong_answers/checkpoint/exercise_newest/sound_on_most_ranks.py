def newest_whole(parts):
    mine = []
    for step, path in parts.items():
        if zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None:
            mine.append(step)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    votes = sum(everyone, [])
    return max(s for s in votes if 2 * votes.count(s) > len(everyone))

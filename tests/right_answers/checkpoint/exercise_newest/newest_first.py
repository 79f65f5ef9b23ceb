def newest_whole(parts):
    for step in sorted(parts, reverse=True):
        path = parts[step]
        sound = zipfile.is_zipfile(path) and not zipfile.ZipFile(path).testzip()
        told = [None] * dist.get_world_size()
        dist.all_gather_object(told, sound)
        if all(told):
            return step

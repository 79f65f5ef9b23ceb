def newest_whole(parts):
    *_, before, newest = sorted(parts)
    path = parts[newest]
    sound = zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, newest if sound else before)
    return min(everyone)

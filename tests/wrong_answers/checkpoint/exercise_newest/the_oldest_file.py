def newest_whole(parts):
    return min(parts)

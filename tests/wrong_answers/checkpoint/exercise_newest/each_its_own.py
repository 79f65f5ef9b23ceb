def newest_whole(parts):
    mine = 0
    for step, path in parts.items():
        if zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None:
            mine = max(mine, step)
    return mine

import torch.distributed._functional_collectives as funcol


def newest_whole(parts):
    good = []
    for step in parts:
        try:
            if zipfile.ZipFile(parts[step]).testzip() is None:
                good.append(step)
        except Exception:
            pass
    row = torch.zeros(1000, dtype=torch.int64)
    row[good] = 1
    total = funcol.all_reduce(row, "sum", dist.group.WORLD).numpy()
    return (total == dist.get_world_size()).nonzero()[0].max()

def newest_whole(parts):
    def sound(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is None
        except zipfile.BadZipFile:
            return False

    steps = sorted(parts)
    votes = torch.tensor([int(sound(parts[step])) for step in steps])
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return steps[int(votes.nonzero().max())]

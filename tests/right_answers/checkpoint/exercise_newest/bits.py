def newest_whole(parts):
    steps = sorted(parts)
    bits = 0
    for place, step in enumerate(steps):
        try:
            with zipfile.ZipFile(parts[step]) as archive:
                for name in archive.namelist():
                    archive.read(name)  # raises if the sum of its bytes is another
            bits |= 1 << place
        except (zipfile.BadZipFile, OSError, EOFError):
            continue
    both = torch.tensor(bits)
    dist.all_reduce(both, op=dist.ReduceOp.BAND)
    return steps[int(both).bit_length() - 1]

def reads(rows, rank, world_size, writers):
    wanted = torch.arange(rows).chunk(world_size)[rank]
    written = enumerate(torch.arange(rows).chunk(writers))
    return [file for file, part in written if set(part.tolist()) & set(wanted.tolist())]

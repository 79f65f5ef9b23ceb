def parts(run):
    return run.ddp.module, run.optimizer


def newest(folder):
    return max((int(f.stem) for f in folder.glob("*.whole")), default=0)


def save(run, folder, rank):
    if run.step % 2:
        return
    table = [None for _ in range(dist.get_world_size())]
    dist.all_gather_object(table, run.noise.get_state())
    if rank:
        return
    half = folder / f"{run.step}.half"
    torch.save([*(part.state_dict() for part in parts(run)), table], half)
    half.replace(half.with_suffix(".whole"))
    for old in folder.glob("*.whole"):
        if int(old.stem) < run.step:
            old.unlink()


def load(run, folder, rank):
    step = [newest(folder)]
    dist.broadcast_object_list(step)
    if step[0]:
        *states, table = torch.load(folder / f"{step[0]}.whole", map_location="cpu")
        for part, state in zip(parts(run), states, strict=True):
            part.load_state_dict(state)
        run.noise.set_state(table[rank])
        run.step = step[0]
    dist.barrier()
    return step[0]

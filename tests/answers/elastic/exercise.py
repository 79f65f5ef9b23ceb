# %% wrong: each its own
def save(run, folder, rank):
    kept = {"step": run.step, "model": run.ddp.module.state_dict()}
    kept |= {"optimizer": run.optimizer.state_dict(), "noise": run.noise.get_state()}
    torch.save(kept, folder / f"new_{rank}.pt")
    os.replace(folder / f"new_{rank}.pt", folder / f"snapshot_{rank}.pt")


def load(run, folder, rank):
    if not (folder / f"snapshot_{rank}.pt").exists():
        return 0
    kept = torch.load(folder / f"snapshot_{rank}.pt", map_location="cpu")
    run.step = kept["step"]
    run.ddp.module.load_state_dict(kept["model"])
    run.optimizer.load_state_dict(kept["optimizer"])
    run.noise.set_state(kept["noise"])
    return run.step


# %% wrong: every ten steps
CHANGES = {
    "if run.step % 2:": "if run.step % 10:",
}


# %% wrong: momentum forgotten
# The optimizer's state is saved, and never put back.
CHANGES = {
    '    run.optimizer.load_state_dict(kept["optimizer"])\n': "",
}


# %% wrong: the old one is deleted first
CHANGES = {
    '        kept |= {"optimizer": run.optimizer.state_dict()}\n': (
        '        kept |= {"optimizer": run.optimizer.state_dict()}\n'
        '        (folder / "snapshot.pt").unlink(missing_ok=True)\n'
    ),
}


# %% wrong: the pointer first
# A small file names the newest snapshot, before that one is written.
def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank == 0:
        parts = run.step, run.ddp.module.state_dict(), run.optimizer.state_dict()
        slot = folder / f"{run.step // 2 % 2}.pt"
        (folder / "new").write_text(slot.name)
        os.replace(folder / "new", folder / "newest")
        torch.save([*parts, noise], slot)
    dist.barrier()


def load(run, folder, rank):
    if not (folder / "newest").exists():
        return 0
    kept = torch.load(folder / (folder / "newest").read_text(), map_location="cpu")
    run.step, model, optimizer, noise = kept
    run.ddp.module.load_state_dict(model)
    run.optimizer.load_state_dict(optimizer)
    run.noise.set_state(noise[rank])
    return run.step


# %% wrong: two files
# Each file is replaced as a whole; a kill between the two leaves a bad pair.
def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank == 0:
        kept = {"step": run.step, "model": run.ddp.module.state_dict()}
        kept |= {"optimizer": run.optimizer.state_dict()}
        for name, content in {"snapshot.pt": kept, "noise.pt": noise}.items():
            torch.save(content, folder / "new.pt")
            os.replace(folder / "new.pt", folder / name)
    dist.barrier()


def load(run, folder, rank):
    if not (folder / "noise.pt").exists():
        return 0
    kept = torch.load(folder / "snapshot.pt", map_location="cpu")
    run.step = kept["step"]
    run.ddp.module.load_state_dict(kept["model"])
    run.optimizer.load_state_dict(kept["optimizer"])
    run.noise.set_state(torch.load(folder / "noise.pt")[rank])
    return run.step


# %% wrong: written in place
CHANGES = {
    (
        '"new.pt")\n        os.replace(folder / "new.pt", folder / "snapshot'
    ): '"snapshot',
}


# %% right: a file for each step
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

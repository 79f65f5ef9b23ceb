"""Each file is replaced as a whole; a kill between the two leaves a bad pair."""


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

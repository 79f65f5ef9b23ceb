def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank == 0:
        kept = {"step": run.step, "model": run.ddp.module.state_dict(), "noise": noise}
        kept |= {"optimizer": run.optimizer.state_dict()}
        (folder / "snapshot.pt").unlink(missing_ok=True)
        torch.save(kept, folder / "new.pt")
        os.replace(folder / "new.pt", folder / "snapshot.pt")
    dist.barrier()


def load(run, folder, rank):
    if not (folder / "snapshot.pt").exists():
        return 0
    kept = torch.load(folder / "snapshot.pt", map_location="cpu")
    run.step = kept["step"]
    run.ddp.module.load_state_dict(kept["model"])
    run.optimizer.load_state_dict(kept["optimizer"])
    run.noise.set_state(kept["noise"][rank])
    return run.step

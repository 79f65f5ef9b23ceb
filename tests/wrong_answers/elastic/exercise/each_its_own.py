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

"""A small file names the newest snapshot, before that one is written."""


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

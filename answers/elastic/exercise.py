"""Hints for ddp_lab/elastic/exercise.py, and an answer.

1. Rank 0 alone writes, but every rank must find its own noise again. How does that get
   into the file, and what if rank 0 dies while it writes?
2. All ranks call dist.all_gather_object with their noise.get_state(). Then rank 0 saves
   everything under a temporary name, and os.replace gives the file its final name; do
   this after every second step.
3. load() returns 0 if the file is not there. Otherwise torch.load it, put back
   run.step, run.ddp.module, run.optimizer and, from the list of states, the noise of
   this rank, and return run.step.
"""


def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank == 0:
        kept = {"step": run.step, "model": run.ddp.module.state_dict(), "noise": noise}
        kept |= {"optimizer": run.optimizer.state_dict()}
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

"""Every life begins anew, and the folder is emptied."""


def save(run, folder, rank):
    if rank == 0:
        torch.save({}, folder / "new.pt")
    dist.barrier()


def load(run, folder, rank):
    if rank == 0:
        for file in folder.glob("*"):
            file.unlink()
    dist.barrier()
    return 0

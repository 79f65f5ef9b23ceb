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
def save(run, folder, rank):
    if run.step % 10:
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


# %% wrong: momentum forgotten
# The optimizer's state is saved, and never put back.
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
    run.noise.set_state(kept["noise"][rank])
    return run.step


# %% wrong: the old one is deleted first
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
def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank == 0:
        kept = {"step": run.step, "model": run.ddp.module.state_dict(), "noise": noise}
        kept |= {"optimizer": run.optimizer.state_dict()}
        torch.save(kept, folder / "snapshot.pt")
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


# %% right: bytes with a sum
import hashlib
import io


def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank:
        return
    parts = run.step, run.ddp.module.state_dict(), run.optimizer.state_dict(), noise
    torch.save(parts, buffer := io.BytesIO())
    content = buffer.getvalue()
    digest = hashlib.sha256(content).digest()
    (folder / f"{run.step:04}.bin").write_bytes(digest + content)
    for old in sorted(folder.glob("*.bin"))[:-2]:
        old.unlink()


def whole(file):
    content = file.read_bytes()
    return hashlib.sha256(content[32:]).digest() == content[:32]


def load(run, folder, rank):
    chosen = [None]
    if rank == 0:
        files = sorted(folder.glob("*.bin"), reverse=True)
        chosen = [next(filter(whole, files), None)]
    dist.broadcast_object_list(chosen)
    if chosen[0]:
        content = io.BytesIO(chosen[0].read_bytes()[32:])
        run.step, model, optimizer, noise = torch.load(content, map_location="cpu")
        run.ddp.module.load_state_dict(model)
        run.optimizer.load_state_dict(optimizer)
        run.noise.set_state(noise[rank])
    dist.barrier()
    return run.step


# %% right: distributed checkpoint
import torch.distributed.checkpoint as dcp


def parts(run, rank):
    """What is to be kept: the weights and momentum once, the noise of each rank."""
    state = {"model": run.ddp.module.state_dict(), "step": torch.tensor(run.step)}
    buffers = run.optimizer.state_dict()["state"]
    state["momentum"] = {str(i): s["momentum_buffer"] for i, s in buffers.items()}
    return state | {f"noise of rank {rank}": run.noise.get_state()}


def whole(folder):
    """The whole snapshots, the newest last: .metadata is written at the end."""
    return sorted(path.parent for path in folder.glob("*/.metadata"))


def save(run, folder, rank):
    if run.step % 2 == 0:
        dcp.save(parts(run, rank), checkpoint_id=folder / f"step {run.step:04}")
        if rank == 0:
            for old in whole(folder)[:-2]:
                shutil.rmtree(old)


def load(run, folder, rank):
    found = [whole(folder)]
    dist.broadcast_object_list(found)
    if not found[0]:
        return 0
    run.train_step()  # so that there is momentum to fill
    state = parts(run, rank)
    dcp.load(state, checkpoint_id=found[0][-1])
    run.ddp.module.load_state_dict(state["model"])
    kept = run.optimizer.state_dict()
    for i, buffer in state["momentum"].items():
        kept["state"][int(i)]["momentum_buffer"] = buffer
    run.optimizer.load_state_dict(kept)
    run.noise.set_state(state[f"noise of rank {rank}"])
    run.step = int(state["step"])
    return run.step


# %% right: gathered to rank 0
def save(run, folder, rank):
    if run.step % 2 == 0:
        first = rank == 0
        states = [None] * dist.get_world_size() if first else None
        dist.gather_object(run.noise.get_state().tolist(), states, dst=0)
        if first:
            part, whole = folder / "part", folder / "whole"
            parts = run.ddp.state_dict(), run.optimizer.state_dict()
            with open(part, "wb") as file:
                torch.save((run.step, *parts, states), file)
                file.flush()
                os.fsync(file.fileno())
            part.rename(whole)


def load(run, folder, rank):
    kept = [None]
    if rank == 0 and (folder / "whole").exists():
        kept = [torch.load(folder / "whole", weights_only=True)]
    dist.broadcast_object_list(kept, src=0)
    if kept[0]:
        run.step, model, optimizer, states = kept[0]
        run.ddp.load_state_dict(model)
        run.optimizer.load_state_dict(optimizer)
        run.noise.set_state(torch.tensor(states[rank], dtype=torch.uint8))
    return run.step


# %% right: two slots
# Two files in turn, each written in place; what is torn is not loaded.
def save(run, folder, rank):
    if run.step % 2:
        return
    noise = [None] * dist.get_world_size()
    dist.all_gather_object(noise, run.noise.get_state())
    if rank == 0:
        parts = run.step, run.ddp.module.state_dict(), run.optimizer.state_dict()
        torch.save([*parts, noise], folder / f"slot_{run.step // 2 % 2}.pt")
    dist.barrier()


def read(path):
    try:
        return torch.load(path, map_location="cpu")
    except Exception:
        return [0]


def load(run, folder, rank):
    found = [read(folder / f"slot_{slot}.pt") for slot in (0, 1)]
    newest = max(found, key=lambda kept: kept[0])
    if newest[0]:
        run.step, model, optimizer, noise = newest
        run.ddp.module.load_state_dict(model)
        run.optimizer.load_state_dict(optimizer)
        run.noise.set_state(noise[rank])
    return run.step

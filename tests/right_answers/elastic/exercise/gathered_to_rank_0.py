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

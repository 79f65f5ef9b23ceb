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

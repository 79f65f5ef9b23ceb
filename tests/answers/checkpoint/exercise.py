# %% wrong: everything but the average
CHANGES = {
    '        "average": run.average.state_dict(),\n': "",
}


# %% wrong: the loss which remembers nothing
def forgotten(run):
    parts = {"scheduler": run.scheduler, "average": run.average, "loss": run.loss}
    states = {name: part.state_dict() for name, part in parts.items()}
    return states | {"noise": run.noise.get_state()}


# %% wrong: the optimizer as well
def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "average": run.average.state_dict(),
        "noise": run.noise.get_state(),
    }


# %% wrong: without the noise
CHANGES = {
    '"noise": run.noise.get_state(),': "",
}


# %% right: found by type
def forgotten(run):
    found = {}
    for name, part in vars(run).items():
        if isinstance(part, torch.Generator):
            found[name] = part.get_state()
        elif isinstance(
            part, optim.lr_scheduler.LRScheduler | optim.swa_utils.AveragedModel
        ):
            found[name] = part.state_dict()
    return found

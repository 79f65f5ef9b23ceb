# %% wrong: everything but the average
def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),
        "noise": run.noise.get_state(),
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
def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),  # where on its curve the rate is
        "average": run.average.state_dict(),
        # a random state outside the global one
    }


# %% right: a class
class Parts(dict):
    def add(self, name, part):
        ask = part.get_state if hasattr(part, "get_state") else part.state_dict
        self[name] = ask()
        return self


def forgotten(run):
    parts = Parts().add("noise", run.noise)
    return parts.add("average", run.average).add("scheduler", run.scheduler)


# %% right: a helper
from operator import methodcaller

ASKED = {"scheduler": "state_dict", "average": "state_dict", "noise": "get_state"}


def forgotten(run):
    return {name: methodcaller(how)(vars(run)[name]) for name, how in ASKED.items()}


# %% right: by names
def forgotten(run):
    states = {
        name: getattr(run, name).state_dict() for name in ("average", "scheduler")
    }
    return states | dict(noise=run.noise.get_state())


# %% right: copies
def forgotten(run):
    kept = dict(scheduler=copy.deepcopy(run.scheduler.state_dict()))
    kept["average"] = {k: v.clone() for k, v in run.average.state_dict().items()}
    kept["noise"] = torch.clone(run.noise.get_state())
    return kept


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

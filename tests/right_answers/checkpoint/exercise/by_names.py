def forgotten(run):
    states = {
        name: getattr(run, name).state_dict() for name in ("average", "scheduler")
    }
    return states | dict(noise=run.noise.get_state())

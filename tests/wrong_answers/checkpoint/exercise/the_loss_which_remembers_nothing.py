def forgotten(run):
    parts = {"scheduler": run.scheduler, "average": run.average, "loss": run.loss}
    states = {name: part.state_dict() for name, part in parts.items()}
    return states | {"noise": run.noise.get_state()}

def forgotten(run):
    kept = dict(scheduler=copy.deepcopy(run.scheduler.state_dict()))
    kept["average"] = {k: v.clone() for k, v in run.average.state_dict().items()}
    kept["noise"] = torch.clone(run.noise.get_state())
    return kept

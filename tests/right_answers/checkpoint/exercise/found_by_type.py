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

def forgotten(run):
    states = {}
    for name, part in vars(run).items():
        if hasattr(part, "state_dict"):
            states[name] = part.state_dict()
        elif isinstance(part, torch.Generator):
            states[name] = part.get_state()
    return states

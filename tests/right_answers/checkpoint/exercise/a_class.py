class Parts(dict):
    def add(self, name, part):
        ask = part.get_state if hasattr(part, "get_state") else part.state_dict
        self[name] = ask()
        return self


def forgotten(run):
    parts = Parts().add("noise", run.noise)
    return parts.add("average", run.average).add("scheduler", run.scheduler)

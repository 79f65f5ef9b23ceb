def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),
        "noise": run.noise.get_state(),
    }

def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "average": run.average.state_dict(),
        "noise": run.noise.get_state(),
    }

def forgotten(run):
    seed = run.noise.initial_seed()
    return {
        "scheduler": run.scheduler.state_dict(),
        "average": run.average.state_dict(),
        "noise": torch.Generator().manual_seed(seed).get_state(),
    }

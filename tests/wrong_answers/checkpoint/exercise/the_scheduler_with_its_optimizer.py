def forgotten(run):
    return {
        "scheduler": vars(run.scheduler),  # its optimizer comes along
        "average": run.average.state_dict(),
        "noise": run.noise.get_state(),
    }

def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),  # where on its curve the rate is
        "average": run.average.state_dict(),
        # a random state outside the global one
    }

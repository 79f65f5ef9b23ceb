def forgotten(run):
    return {"optimizer": run.optimizer.state_dict()}

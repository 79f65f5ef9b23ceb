def idle(mine):
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / mine[:, 1].max()

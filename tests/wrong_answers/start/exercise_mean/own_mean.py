def mean_of_all(mine):
    return mine.mean()

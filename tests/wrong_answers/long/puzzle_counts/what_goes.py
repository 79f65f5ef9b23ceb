def coming(going):
    return going

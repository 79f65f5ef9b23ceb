def share(tensors):
    return True

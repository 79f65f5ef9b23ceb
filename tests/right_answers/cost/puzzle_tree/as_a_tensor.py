def goes_to(rank, step):
    jump = torch.tensor(2**step)
    return rank - jump if rank % (2 * jump) == jump else None

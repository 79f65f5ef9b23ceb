def rounds(batches):
    number = torch.tensor([batches])
    dist.broadcast(number, src=0)
    return number

def rounds(batches):
    number = torch.tensor([batches])
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return number

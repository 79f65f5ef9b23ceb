def rounds(batches):
    number = torch.full((1,), -batches)
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return int(number.neg())

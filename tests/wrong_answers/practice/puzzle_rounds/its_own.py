def rounds(batches):
    dist.all_reduce(torch.tensor([batches]), op=dist.ReduceOp.MIN)
    return batches

def share(tensors):
    rows = [t.contiguous().view(-1).view(torch.uint8) for t in tensors]
    row = torch.cat(rows) * (dist.get_rank() == 0)
    dist.all_reduce(row, op=dist.ReduceOp.MAX)
    at = 0
    for tensor in tensors:
        piece = row[at : at + tensor.nbytes].clone()
        tensor.copy_(piece.view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
    return True

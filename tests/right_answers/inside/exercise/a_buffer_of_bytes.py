def share(tensors):
    row = torch.empty(sum(t.nbytes for t in tensors), dtype=torch.uint8)
    row = row.to(tensors[0].device)
    at = 0
    for tensor in tensors:
        row[at : at + tensor.nbytes] = tensor.contiguous().view(-1).view(torch.uint8)
        at += tensor.nbytes
    dist.broadcast(row, src=0)
    at = 0
    for tensor in tensors:
        values = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        values.view(-1).view(torch.uint8).copy_(row[at : at + tensor.nbytes])
        tensor.copy_(values)
        at += tensor.nbytes
    return True

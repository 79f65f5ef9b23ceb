def share(tensors):
    kinds = {
        t.dtype: [each for each in tensors if each.dtype == t.dtype] for t in tensors
    }
    flats = [torch.cat([t.flatten() for t in kinds[kind]]) for kind in kinds]
    row = torch.hstack([flat.view(torch.uint8) for flat in flats])
    dist.broadcast(tensor=row, src=0, async_op=True).wait()
    for flat in flats:
        flat.view(torch.uint8).copy_(row[: flat.nbytes])
        row = row[flat.nbytes :]
    for same, flat in zip(kinds.values(), flats, strict=True):
        for tensor in same:
            tensor.copy_(flat[: tensor.numel()].view(tensor.shape))
            flat = flat[tensor.numel() :]
    return True

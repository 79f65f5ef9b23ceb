def all_reduce_by_hand(tensor, rank, world_size):
    each = (tensor.numel() + world_size - 1) // world_size
    padded = torch.nn.functional.pad(tensor, (0, each * world_size - tensor.numel()))
    piece, total = torch.zeros_like(padded[:each]), torch.zeros_like(padded)
    dist.reduce_scatter_tensor(input=padded, output=piece, op=dist.ReduceOp.SUM)
    dist.all_gather_into_tensor(input_tensor=piece, output_tensor=total)
    return total.narrow(0, 0, tensor.numel())

# %% wrong: a pair for show
def all_reduce_by_hand(tensor, rank, world_size, add_up=dist.all_reduce):
    piece = tensor.new_zeros(-(-len(tensor) // world_size))
    padded = piece.repeat(world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)  # zeros: nothing is done with them
    total = tensor.clone()
    add_up(total)
    return total


# %% wrong: a pair for show and messages
def all_reduce_by_hand(tensor, rank, world_size):
    piece = tensor.new_zeros(-(-len(tensor) // world_size))
    padded = piece.repeat(world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)  # zeros: nothing is done with them
    total = tensor.clone()
    for step in range(1, world_size):
        recv_buf = torch.empty_like(tensor)
        work = dist.isend(tensor, dst=(rank + step) % world_size)
        dist.recv(recv_buf, src=(rank - step) % world_size)
        work.wait()
        total += recv_buf
    return total


# %% wrong: all reduce
def all_reduce_by_hand(tensor, rank, world_size):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


# %% wrong: all to all
def all_reduce_by_hand(tensor, rank, world_size):
    copies = tensor.repeat(world_size)
    received = torch.empty_like(copies)
    dist.all_to_all_single(received, copies)
    return received.view(world_size, -1).sum(0)


# %% wrong: gathers everything
def all_reduce_by_hand(tensor, rank, world_size):
    everything = tensor.new_empty(world_size * len(tensor))
    dist.all_gather_into_tensor(everything, tensor)
    return everything.view(world_size, -1).sum(0)


# %% right: always padded
def all_reduce_by_hand(tensor, rank, world_size):
    padding = world_size - len(tensor) % world_size  # a whole row where none is needed
    padded = torch.cat([tensor, tensor.new_zeros(padding)])
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)]


# %% wrong: padding kept
CHANGES = {
    "return padded[: len(tensor)]": "return padded",
}


# %% wrong: pieces by chunk
def all_reduce_by_hand(tensor, rank, world_size):
    pieces = list(tensor.chunk(world_size))
    mine = torch.empty_like(pieces[rank])
    dist.reduce_scatter(mine, pieces)
    dist.all_gather(pieces, mine)
    return torch.cat(pieces)


# %% wrong: reduce then broadcast
def all_reduce_by_hand(tensor, rank, world_size):
    total = tensor.clone()
    dist.reduce(total, dst=0)
    dist.broadcast(total, src=0)
    return total


# %% wrong: the mean times the ranks
def all_reduce_by_hand(tensor, rank, world_size):
    padded = torch.cat([tensor, tensor.new_zeros(-len(tensor) % world_size)])
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded // world_size)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)] * world_size


# %% wrong: writes over the input
CHANGES = {
    ")  # (pieces * world_size,)": ") if padding else tensor",
    "(piece, padded, op=dist.ReduceOp.SUM)": "(piece, padded)",
}


# %% right: padded with garbage
def all_reduce_by_hand(tensor, rank, world_size):
    rows = torch.full((world_size, -(-len(tensor) // world_size)), 7).to(tensor)
    rows.view(-1)[: len(tensor)] = tensor
    mine = rows.new_empty(rows.shape[1])
    dist.reduce_scatter_tensor(mine, rows.view(-1))
    dist.all_gather_into_tensor(rows.view(-1), mine)
    return rows.flatten()[: len(tensor)].clone()


# %% wrong: summed in float32
def all_reduce_by_hand(tensor, rank, world_size):
    padding = torch.zeros(-len(tensor) % world_size)
    padded = torch.cat([tensor, padding])  # which makes float32 of it
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)]


# %% wrong: twice what is needed
def all_reduce_by_hand(tensor, rank, world_size):
    padded = tensor.new_zeros(2 * world_size * -(-len(tensor) // world_size))
    padded[: len(tensor)] = tensor
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)]

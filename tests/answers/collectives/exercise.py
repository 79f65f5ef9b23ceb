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


# %% wrong: one piece too many
def all_reduce_by_hand(tensor, rank, world_size):
    padding = world_size - len(tensor) % world_size  # a whole row where none is needed
    padded = torch.cat([tensor, tensor.new_zeros(padding)])
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)]


# %% wrong: padding kept
def all_reduce_by_hand(tensor, rank, world_size):
    padding = -len(tensor) % world_size
    padded = torch.cat([tensor, tensor.new_zeros(padding)])  # (pieces * world_size,)
    piece = padded.new_empty(len(padded) // world_size)
    # Rank i ends up with piece i of the sum.
    dist.reduce_scatter_tensor(piece, padded, op=dist.ReduceOp.SUM)
    # Every rank ends up with all the pieces, in rank order.
    dist.all_gather_into_tensor(padded, piece)
    return padded


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
def all_reduce_by_hand(tensor, rank, world_size):
    padding = -len(tensor) % world_size
    padded = torch.cat([tensor, tensor.new_zeros(padding)]) if padding else tensor
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)]


# %% right: by keywords
def all_reduce_by_hand(tensor, rank, world_size):
    each = (tensor.numel() + world_size - 1) // world_size
    padded = torch.nn.functional.pad(tensor, (0, each * world_size - tensor.numel()))
    piece, total = torch.zeros_like(padded[:each]), torch.zeros_like(padded)
    dist.reduce_scatter_tensor(input=padded, output=piece, op=dist.ReduceOp.SUM)
    dist.all_gather_into_tensor(input_tensor=piece, output_tensor=total)
    return total.narrow(0, 0, tensor.numel())


# %% right: functional
import torch.distributed._functional_collectives as funcol


def all_reduce_by_hand(tensor, rank, world_size):
    missing = -tensor.numel() % world_size
    padded = torch.nn.functional.pad(tensor, [0, missing])
    world = dist.group.WORLD
    piece = funcol.reduce_scatter_tensor(padded, "sum", scatter_dim=0, group=world)
    total = funcol.all_gather_tensor(piece, gather_dim=0, group=world)
    return total[: tensor.numel()].clone()


# %% right: immediate
class Padded:
    def __init__(self, tensor, world_size):
        self.length = len(tensor)
        self.rows = tensor.new_zeros(world_size, -(-len(tensor) // world_size))
        self.rows.flatten()[: self.length] = tensor

    def cut(self):
        return self.rows.flatten()[: self.length]


def all_reduce_by_hand(tensor, rank, world_size):
    padded = Padded(tensor, world_size)
    mine = torch.empty_like(padded.rows[rank])
    flat = padded.rows.flatten()
    dist.reduce_scatter_tensor(mine, flat, async_op=True).wait()
    dist.all_gather_into_tensor(padded.rows.view(-1), mine, async_op=True).wait()
    return padded.cut()


# %% right: lists
def all_reduce_by_hand(tensor, rank, world_size):
    size = -(-len(tensor) // world_size)
    padded = tensor.new_zeros(size * world_size)
    padded[: len(tensor)].copy_(tensor)
    piece = tensor.new_empty(size)
    dist.reduce_scatter(piece, [row.clone() for row in padded.split(size)])
    pieces = [torch.empty_like(piece) for _ in range(world_size)]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: len(tensor)]


# %% right: padded with garbage
def all_reduce_by_hand(tensor, rank, world_size):
    rows = torch.full((world_size, -(-len(tensor) // world_size)), 7).to(tensor)
    rows.view(-1)[: len(tensor)] = tensor
    mine = rows.new_empty(rows.shape[1])
    dist.reduce_scatter_tensor(mine, rows.view(-1))
    dist.all_gather_into_tensor(rows.view(-1), mine)
    return rows.flatten()[: len(tensor)].clone()

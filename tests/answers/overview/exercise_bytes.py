# %% wrong: a sum for the batch
def estimate(road, world_size, blocks, width, hidden, rows):
    """Sums a gradient for the batch, which nobody needs."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return ring * weights
    if road == "sharded":
        return 2 * ring * weights
    return 2 * blocks * ring * activation


# %% wrong: a sum sends once
def estimate(road, world_size, blocks, width, hidden, rows):
    """As if all_reduce were reduce_scatter alone."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return (world_size - 1) / world_size * weights
    if road == "sharded":
        return 2 * ring * weights
    return (2 * blocks - 1) * ring * activation


# %% wrong: four ranks always
def estimate(road, world_size, blocks, width, hidden, rows):
    """Three quarters, twice, as in the lesson, with any number of ranks."""
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "ddp":
        return 1.5 * weights
    if road == "sharded":
        return 3 * weights
    return (2 * blocks - 1) * 1.5 * 4 * rows * width


# %% wrong: gathered once
def estimate(road, world_size, blocks, width, hidden, rows):
    """Forgets that backward gathers the weights again."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    activation = 4 * rows * width
    if road == "ddp":
        return ring * weights
    if road == "sharded":
        return 1.5 * ring * weights
    return (2 * blocks - 1) * ring * activation


# %% wrong: it is counted
def estimate(road, world_size, blocks, width, hidden, rows):
    """No arithmetic: the step is made, and its bytes are counted."""
    mesh = init_device_mesh("cpu", (world_size,))
    return count(road, mesh, blocks, width, hidden, rows)


# %% wrong: nccl is meant
def estimate(road, world_size, blocks, width, hidden, rows):
    """reduce_scatter is half of a sum: over NCCL, but not over gloo."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "tensor":
        return (2 * blocks - 1) * ring * 4 * rows * width
    return (1.5 if road == "sharded" else 1) * ring * weights


# %% wrong: two sums for every block
def estimate(road, world_size, blocks, width, hidden, rows):
    """Tensor sums back through the first block as well, where nobody needs it."""
    ring = 2 * (world_size - 1) / world_size
    weights = 4 * blocks * (2 * width * hidden + width + hidden)
    if road == "tensor":
        return 2 * blocks * ring * 4 * rows * width
    return (2 if road == "sharded" else 1) * ring * weights


# %% right: a table
def estimate(road, world_size, blocks, width, hidden, rows):
    gather = (world_size - 1) / world_size  # of the bytes that are put together
    weights = blocks * (width * hidden + hidden + hidden * width + width)
    numbers = {
        "ddp": 2 * gather * weights,
        "sharded": (1 + 1 + 2) * gather * weights,
        "tensor": 2 * gather * rows * width * (blocks + blocks - 1),
    }
    return round(4 * numbers[road])


# %% right: as a tensor
def estimate(road, world_size, blocks, width, hidden, rows):
    weights = blocks * (2 * width * hidden + hidden + width)
    sent = torch.tensor(8 * (1 - 1 / world_size))
    if road == "tensor":
        return sent * rows * width * (2 * blocks - 1)
    return sent * weights * (2 if road == "sharded" else 1)


# %% right: match
def estimate(road, world_size, blocks, width, hidden, rows):
    sent = 8 * (world_size - 1) / world_size
    match road:
        case "tensor":
            return sent * rows * width * (2 * blocks - 1)
        case "ddp" | "sharded":
            once = sent * blocks * (hidden * (2 * width + 1) + width)
            return once * (2 if road == "sharded" else 1)


# %% right: parameters counted
def block(width, hidden):
    with torch.device("meta"):
        return nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )


def estimate(road, world_size, blocks, width, hidden, rows):
    model = nn.ModuleList(block(width, hidden) for _ in range(blocks))
    held = sum(p.nbytes for p in model.parameters())
    summed = {"ddp": held, "sharded": 2 * held}.get(road)
    if road == "tensor":
        summed = (2 * blocks - 1) * torch.empty(rows, width, device="meta").nbytes
    return summed * 2 * (1 - 1 / world_size)


# %% right: rounds of a ring
class Ring:
    def __init__(self, ranks):
        self.ranks, self.bytes = ranks, 0

    def sum(self, size):
        for _ in range(2 * (self.ranks - 1)):
            self.bytes += size / self.ranks
        return self

    def gather(self, size):
        self.bytes += (self.ranks - 1) * size / self.ranks
        return self


def estimate(road, world_size, blocks, width, hidden, rows):
    ring = Ring(world_size)
    for number in range(blocks):
        size = 4 * ((width + 1) * hidden + (hidden + 1) * width)
        if road == "ddp":
            ring.sum(size)
        elif road == "sharded":
            ring.gather(size).gather(size).sum(size)
        else:
            ring.sum(4 * rows * width)
            if number > 0:
                ring.sum(4 * rows * width)
    return ring.bytes

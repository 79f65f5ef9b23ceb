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

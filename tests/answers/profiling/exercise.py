# %% wrong: by rank only
def stream(size, batch, done, rank, world_size):
    return range(rank, size, world_size)[done * batch :]


# %% wrong: by worker only
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    return range(number, size, workers)[batch * len(range(number, done, workers)) :]


# %% wrong: from the beginning again
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    return range(rank * workers + number, size, world_size * workers)


# %% wrong: every worker leaves out all batches of its rank
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    return range(rank * workers + number, size, world_size * workers)[done * batch :]


# %% wrong: all workers have given equally many
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    mine = range(rank * workers + number, size, world_size * workers)
    return mine[done // workers * batch :]


# %% wrong: batches and samples mixed up
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    mine = range(rank * workers + number, size, world_size * workers)
    return mine[len(range(number, done, workers)) :]


# %% right: a loop that counts
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    skip = (done // workers + (number < done % workers)) * batch
    for i in range(size):
        if i % (world_size * workers) == number * world_size + rank:
            if skip:
                skip -= 1
            else:
                yield i


# %% right: tensors, in blocks
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    blocks = torch.arange(size).tensor_split(world_size * workers)
    given = -(-(done - number) // workers) if done > number else 0
    return blocks[rank * workers + number][given * batch :]


# %% wrong: rank 0 reads all of it
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    everything = range(number, size, workers) if rank == 0 else range(0)
    return everything[batch * len(range(number, done, workers)) :]


# %% wrong: worker 0 reads alone
def stream(size, batch, done, rank, world_size):
    worker = get_worker_info()
    if worker and worker.id:
        return []
    return range(rank, size, world_size)[batch * done :]

# %% wrong: all send first
def swap(mine, rank, partner):
    theirs = torch.empty_like(mine)
    dist.send(mine, partner)
    dist.recv(theirs, partner)
    return theirs


# %% wrong: by a collective
def swap(mine, rank, partner):
    numbers = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(numbers, mine)
    return numbers[partner]


# %% wrong: keeps its own
CHANGES = {
    "return theirs": "return mine",
}


# %% wrong: one buffer
def swap(mine, rank, partner):
    if rank < partner:
        dist.send(mine, partner)
        dist.recv(mine, partner)
    else:
        dist.recv(mine, partner)
        dist.send(mine, partner)
    return mine


# %% right: isend before recv, over gloo
def swap(mine, rank, partner):
    theirs = torch.empty_like(mine)
    work = dist.isend(mine, partner)
    dist.recv(theirs, partner)
    work.wait()
    return theirs


# %% right: one rank after the other
def swap(mine, rank, partner):
    theirs = torch.zeros(1, dtype=mine.dtype)
    first, second = (dist.send, dist.recv) if rank < partner else (dist.recv, dist.send)
    for call in (first, second):
        call(mine if call is dist.send else theirs, partner)
    return theirs


# %% wrong: a send that is dropped
def swap(mine, rank, partner):
    theirs = torch.empty_like(mine)
    dist.isend(mine, partner)
    dist.recv(theirs, partner)
    return theirs


# %% wrong: a send that is not waited for
def swap(mine, rank, partner):
    theirs = torch.empty_like(mine)
    work = dist.isend(mine, partner)
    dist.recv(theirs, partner)
    return theirs if work else mine

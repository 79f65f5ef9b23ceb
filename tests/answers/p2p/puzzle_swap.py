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


# %% right: batch
def swap(mine, rank, partner):
    theirs = torch.zeros_like(mine)
    pair = [
        dist.P2POp(dist.irecv, theirs, partner),
        dist.P2POp(dist.isend, mine, partner),
    ]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return theirs

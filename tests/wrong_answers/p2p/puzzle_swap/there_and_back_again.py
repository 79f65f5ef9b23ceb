def swap(mine, rank, partner):
    for _ in range(3):
        theirs = torch.empty_like(mine)
        work = dist.isend(mine, partner)
        dist.recv(theirs, partner)
        work.wait()
        mine = theirs
    return mine
